package dashboard

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	fileRows = 200
	// fileBytes is how much of a file a page shows, in bytes.
	fileBytes = 256 << 10
)

// filesView is a folder or a file of a workspace.
type filesView struct {
	threadHead
	Path    string
	Parents []link
	Away    bool // no sandbox runs, and to read files would start one
	Entries []fileRow
	More    *link
	File    *fileView // nil for a folder
	// Versions are the stored ones, the newest first; NoVersions is why there are none.
	Versions   []schemas.WorkspaceVersion
	NoVersions string
}

// fileRow is an entry of a folder. Changed says that it was changed after the last version was stored.
type fileRow struct {
	schemas.FileEntry
	Name    string
	URL     string // empty for one that cannot be opened
	Changed bool
}

// fileView is the content of a file.
type fileView struct {
	schemas.FileEntry
	Lines   []string
	Binary  bool
	Cut     bool
	RawURL  string
	Changed bool
}

func filesPage(v *visit) (*page, error) {
	f := &filesView{Path: strings.Trim(v.r.PathValue("path"), "/")}
	limit, err := rows(v, fileRows)
	if err != nil {
		return nil, err
	}
	if f.threadHead, err = head(v, "files"); err != nil {
		return nil, err
	}
	base := threadURL(f.Thread) + "/files"
	f.addParents(base)
	p := &page{name: "files", Title: f.Thread + ": files", Section: "overview", Data: f}
	if f.Session == nil || f.Session.State != schemas.SandboxRunning {
		f.Away = true
		return p, nil
	}
	if err := f.readVersions(v); err != nil {
		return nil, err
	}
	files := v.client.Files(f.Thread)
	e := &schemas.FileEntry{Type: "folder"}
	if f.Path != "" {
		if e, err = files.Stat(v.ctx(), f.Path); err != nil {
			return nil, err
		}
	}
	if e.Type != "folder" {
		return p, f.readFile(v, files, e)
	}
	for e, err := range files.List(v.ctx(), f.Path) {
		if err != nil {
			return nil, err
		}
		if len(f.Entries) == limit {
			f.More = moreLink(base+"/"+escapePath(f.Path), limit)
			break
		}
		row := fileRow{FileEntry: e, Name: path.Base(e.Path), Changed: e.Type == "file" && f.changed(e.Modified)}
		if utf8.ValidString(e.Path) && !strings.ContainsRune(e.Path, utf8.RuneError) && (e.Type == "file" || e.Type == "folder") {
			row.URL = base + "/" + escapePath(e.Path)
		}
		f.Entries = append(f.Entries, row)
	}
	return p, nil
}

func (f *filesView) addParents(base string) {
	f.Parents = []link{{"workspace", base}}
	if f.Path == "" {
		return
	}
	at := ""
	for _, part := range strings.Split(f.Path, "/") {
		at = path.Join(at, part)
		f.Parents = append(f.Parents, link{part, base + "/" + escapePath(at)})
	}
}

// readVersions reads the stored versions. A template that stores none is no error.
func (f *filesView) readVersions(v *visit) error {
	s, err := v.client.Session(v.ctx(), f.Thread)
	if err != nil {
		return err
	}
	f.Versions, err = s.Versions(v.ctx())
	if errors.Is(err, schemas.ErrInvalidArgument) {
		f.NoVersions = schemas.AsError(err).Error()
		return nil
	}
	return err
}

// changed reports that a time is after that of the last version.
func (f *filesView) changed(modified *time.Time) bool {
	return modified != nil && len(f.Versions) > 0 && modified.After(f.Versions[0].Time)
}

// readFile reads the beginning of a file.
func (f *filesView) readFile(v *visit, files *client.Files, e *schemas.FileEntry) error {
	f.File = &fileView{FileEntry: *e, RawURL: apiPath + "threads/" + f.Thread + "/files/" + escapePath(f.Path), Changed: f.changed(e.Modified)}
	if e.Type != "file" {
		return nil
	}
	content, err := files.Open(v.ctx(), f.Path, client.FilePart{Limit: min(e.Size, fileBytes)})
	if err != nil {
		return err
	}
	defer content.Close()
	body, err := io.ReadAll(io.LimitReader(content, fileBytes))
	if err != nil {
		return err
	}
	f.File.Cut = e.Size > int64(len(body))
	if f.File.Cut { // a character may be cut
		for range utf8.UTFMax - 1 {
			if !utf8.Valid(body) && len(body) > 0 {
				body = body[:len(body)-1]
			}
		}
	}
	if f.File.Binary = bytes.IndexByte(body, 0) >= 0 || !utf8.Valid(body); f.File.Binary {
		return nil
	}
	for line := range strings.Lines(string(body)) {
		f.File.Lines = append(f.File.Lines, clean(strings.TrimRight(line, "\r\n")))
	}
	return nil
}
