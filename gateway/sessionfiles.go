package gateway

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// maxListed is how many files of a workspace are listed.
const maxListed = 10_000

// listing is the files of a workspace.
type listing struct {
	files []schemas.FileEntry
	bytes int64 // of all files
	more  bool  // than maxListed
}

// listWorkspace lists the files of a workspace, those in folders included.
func listWorkspace(ctx context.Context, f *client.Files) (*listing, error) {
	var l listing
	folders := []string{""}
	for len(folders) > 0 {
		folder := folders[len(folders)-1]
		folders = folders[:len(folders)-1]
		for e, err := range f.List(ctx, folder) {
			switch {
			case folder != "" && errors.Is(err, schemas.ErrNotFound): // it was removed meanwhile
			case err != nil:
				return nil, err
			case len(l.files)+len(folders) >= maxListed:
				l.more = true
				return &l, nil
			case e.Type == "folder":
				folders = append(folders, e.Path)
			case e.Type == "file":
				l.files = append(l.files, e)
				l.bytes += e.Size
			}
		}
	}
	return &l, nil
}

type fileAnswer struct {
	Name        string     `json:"name"`
	SizeBytes   int64      `json:"size_bytes"`
	Modified    *time.Time `json:"modified"`
	Permissions string     `json:"permissions"`
}

func listFiles(c *call) error {
	session := c.r.URL.Query().Get("session_id")
	s, info, err := c.open(session)
	if err != nil {
		return err
	}
	l, err := listWorkspace(c.r.Context(), s.Files())
	if err != nil {
		return sessionError(session, err)
	}
	slices.SortStableFunc(l.files, func(a, b schemas.FileEntry) int { return modified(b).Compare(modified(a)) })
	files := make([]fileAnswer, len(l.files))
	for i, e := range l.files {
		files[i] = fileAnswer{Name: e.Path, SizeBytes: e.Size, Modified: e.Modified, Permissions: e.Mode}
	}
	writeJSON(c.w, http.StatusOK, struct {
		SessionID      string       `json:"session_id"`
		WorkspaceDir   string       `json:"workspace_dir"`
		Files          []fileAnswer `json:"files"`
		TotalFiles     int          `json:"total_files"`
		TotalSizeBytes int64        `json:"total_size_bytes"`
		Truncated      bool         `json:"truncated,omitempty"`
	}{session, workspaceDir(info), files, len(files), l.bytes, l.more})
	return nil
}

func modified(e schemas.FileEntry) time.Time {
	if e.Modified == nil {
		return time.Time{}
	}
	return *e.Modified
}

func downloadFile(c *call) error {
	var req struct {
		SessionID string `json:"session_id"`
		Filename  string `json:"filename"`
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	if req.Filename == "" {
		return missing("filename")
	}
	s, info, err := c.open(req.SessionID)
	if err != nil {
		return err
	}
	err = c.sendFile(s.Files(), req.Filename)
	if errors.Is(err, schemas.ErrNotFound) {
		return &refusal{err: err, text: "File not found", fields: map[string]any{"filename": req.Filename, "workspace_dir": workspaceDir(info)}}
	}
	return sessionError(req.SessionID, err)
}

// sendFile sends the content of a file as it arrives. Errors: those of [client.Files].
func (c *call) sendFile(f *client.Files, name string) error {
	ctx := c.r.Context()
	e, err := f.Stat(ctx, name)
	if err != nil {
		return err
	}
	if e.Type != "file" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "%.100q is a %s, no file", name, e.Type).With("path", "filename")
	}
	if err := c.quota.room(time.Now(), e.Size); err != nil {
		return err
	}
	content, err := f.Open(ctx, name, client.FilePart{Limit: e.Size})
	if err != nil {
		return err
	}
	defer content.Close()
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", attachment(path.Base(name)))
	h.Set("Content-Length", strconv.FormatInt(e.Size, 10))
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	if n, err := io.Copy(c.w, io.LimitReader(metered{content, c.quota}, e.Size)); err != nil || n != e.Size {
		panic(http.ErrAbortHandler) // it has become shorter, or its worker is gone
	}
	return nil
}

// attachment is a Content-Disposition; [mime.FormatMediaType] encodes what a header cannot hold.
func attachment(name string) string {
	if s := mime.FormatMediaType("attachment", map[string]string{"filename": strings.ToValidUTF8(name, "_")}); s != "" {
		return s
	}
	return "attachment"
}
