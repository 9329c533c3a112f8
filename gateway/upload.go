package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	maxField    = schemas.MaxPathBytes // the most bytes of a text field of a form
	formBytes   = 64 << 10             // the most bytes of a form beside its file
	undoTimeout = 10 * time.Second
	megabyte    = 1e6
)

// upload is a form with a file, on its way into a workspace. Its file is never held whole.
type upload struct {
	*call
	session, filename string
	files             *client.Files // nil before the session is known
	folder            string        // the workspace, as processes see it
	limits            schemas.TemplateLimits
	there             *listing
	temporary         string // the path of the file while its name is not known; empty for none
	size              int64  // of the file; -1 before it was received
}

func uploadFile(c *call) error {
	form, err := c.r.MultipartReader()
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the content type is %.60q: send multipart/form-data", c.r.Header.Get("Content-Type"))
	}
	u := &upload{call: c, size: -1}
	if err = u.read(form); err == nil {
		err = u.finish()
	}
	if err != nil {
		u.undo()
		return sessionError(u.session, err)
	}
	writeJSON(c.w, http.StatusOK, struct {
		Status    string `json:"status"`
		Filename  string `json:"filename"`
		Path      string `json:"path"`
		SizeBytes int64  `json:"size_bytes"`
	}{"uploaded", u.filename, u.path(), u.size})
	return nil
}

// path is that of the file, as processes see it.
func (u *upload) path() string {
	if path.IsAbs(u.filename) {
		return path.Clean(u.filename)
	}
	return path.Join(u.folder, u.filename)
}

// read reads the form. The session comes before the file; the file's name may come after it.
func (u *upload) read(form *multipart.Reader) error {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		switch name := part.FormName(); name {
		case "session_id":
			err = u.begin(part)
		case "filename":
			u.filename, err = textField(part)
		case "file":
			err = u.receive(part)
		default:
			err = schemas.Errorf(schemas.CodeInvalidArgument, "%.40q: unknown field", name).With("path", strings.ToValidUTF8(name, "_"))
		}
		if err != nil {
			return err
		}
	}
}

func textField(part *multipart.Part) (string, error) {
	text, err := io.ReadAll(io.LimitReader(part, maxField+1))
	if err != nil {
		return "", bodyError(err)
	}
	if len(text) > maxField {
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "%s: more than %d bytes", part.FormName(), maxField).With("path", part.FormName())
	}
	return string(text), nil
}

// begin finds the session, what its workspace holds, and what it may hold.
func (u *upload) begin(part *multipart.Part) error {
	if u.files != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "session_id: given twice").With("path", "session_id")
	}
	var err error
	if u.session, err = textField(part); err != nil {
		return err
	}
	s, info, err := u.open(u.session)
	if err != nil {
		return err
	}
	u.folder = workspaceDir(info)
	t, err := u.client.Template(u.r.Context(), cmp.Or(info.Template, documentsTemplate))
	if err != nil && !errors.Is(err, schemas.ErrNotFound) { // then the sandbox alone knows its limits
		return err
	}
	if err == nil {
		u.limits = t.Limits
	}
	u.files = s.Files()
	u.there, err = listWorkspace(u.r.Context(), u.files)
	return err
}

// receive writes the file as it arrives, under another name where its own is not known yet.
func (u *upload) receive(part *multipart.Part) error {
	if u.files == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "session_id: missing before the file").With("path", "session_id")
	}
	if u.size >= 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "file: given twice").With("path", "file")
	}
	to := u.filename
	if to == "" {
		u.filename = part.FileName()
		u.temporary = ".upload-" + strings.ToLower(ulid.Make().String())
		to = u.temporary
	}
	if err := checkName(u.filename); err != nil && u.temporary == "" {
		return err
	}
	from, err := u.admit(part)
	if err != nil {
		return err
	}
	if _, err = u.files.Write(u.r.Context(), to, from, client.FileParents()); err != nil {
		return u.refused(err, from.size)
	}
	u.size = from.size
	return nil
}

// admit checks the limits before the file is received, and returns a reader that checks them meanwhile. A file that is replaced counts:
// it is there until the new one is whole.
func (u *upload) admit(part *multipart.Part) (*bounded, error) {
	count := int64(len(u.there.files))
	if most := u.limits.WorkspaceFiles; most > 0 && count >= most {
		return nil, &refusal{
			err: schemas.Errorf(schemas.CodeLimitExceeded, "the workspace has %d files, the limit is %d", count, most), text: "Too many files",
			fields: map[string]any{"max_files": most, "current_files": count},
		}
	}
	from := &bounded{from: part, file: u.limits.FileBytes, room: -1}
	if most := u.limits.WorkspaceBytes; most > 0 {
		from.room = max(0, most-u.there.bytes)
	}
	if announced := u.r.ContentLength - formBytes; announced > 0 {
		if err := from.check(announced); err != nil {
			return nil, u.refused(err, u.r.ContentLength)
		}
	}
	return from, nil
}

// refused is the documented error of a file that is too large, or for which there is no room.
func (u *upload) refused(err error, size int64) error {
	if isTokenLimit(err) {
		return err
	}
	switch schemas.CodeOf(err) {
	case schemas.CodeTooLarge:
		return &refusal{err: err, text: "File too large", fields: map[string]any{
			"max_size_mb": float64(u.limits.FileBytes) / megabyte, "uploaded_size_mb": float64(size) / megabyte,
		}}
	case schemas.CodeLimitExceeded:
		return &refusal{err: err, text: "Workspace full", fields: map[string]any{
			"max_workspace_mb": float64(u.limits.WorkspaceBytes) / megabyte, "current_workspace_mb": float64(u.there.bytes) / megabyte,
			"file_size_mb": float64(size) / megabyte,
		}}
	default:
		return err
	}
}

// finish gives the file its name.
func (u *upload) finish() error {
	switch {
	case u.files == nil:
		return missing("session_id")
	case u.size < 0:
		return missing("file")
	}
	if err := checkName(u.filename); err != nil || u.temporary == "" {
		return err
	}
	ctx := u.r.Context()
	if folder := path.Dir(u.filename); folder != "." {
		if _, err := u.files.Mkdir(ctx, folder, client.FileParents()); err != nil {
			return err
		}
	}
	_, err := u.files.Move(ctx, u.temporary, u.filename)
	if err == nil {
		u.temporary = ""
	}
	return err
}

// undo removes a file that has no name.
func (u *upload) undo() {
	if u.temporary == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.r.Context()), undoTimeout)
	defer cancel()
	_ = u.files.Remove(ctx, u.temporary) // it may not be there; the session's end removes it
}

// checkName refuses what is no name of a file. That it leads out of the workspace is for the sandbox to find.
func checkName(name string) error {
	if name == "" {
		return missing("filename")
	}
	if strings.HasSuffix(name, "/") || strings.ContainsFunc(name, unicode.IsControl) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "filename: %.60q is no name of a file", name).With("path", "filename")
	}
	return nil
}

// bounded is a reader of at most file bytes, or room where that is not negative. A body that is cut is an error.
type bounded struct {
	from       io.Reader
	file, room int64 // 0 and -1: no limit
	size       int64
}

// Read returns too_large and limit_exceeded for what is over a limit.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.size += int64(n)
	if full := b.check(b.size); full != nil {
		return n, full
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, bodyError(err)
	}
	return n, err
}

func (b *bounded) check(size int64) error {
	if b.file > 0 && size > b.file {
		return schemas.Errorf(schemas.CodeTooLarge, "the file has more than %d bytes", b.file)
	}
	if b.room >= 0 && size > b.room {
		return schemas.Errorf(schemas.CodeLimitExceeded, "the workspace has room for %d bytes more", b.room)
	}
	return nil
}
