package dashboard

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
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
	// Changes are those of the workspace since the last version; nil on the page of a file.
	Changes *workspaceChanges
	// Deleted are what the folder had in the last version.
	Deleted []changeRow
}

// fileRow is an entry of a folder.
type fileRow struct {
	schemas.FileEntry
	Name   string
	URL    string // empty for one that cannot be opened
	Change string // since the last version: added, changed; empty for none
	Below  int    // how much of a folder has changed
}

// fileView is the content of a file.
type fileView struct {
	schemas.FileEntry
	Lines   []string
	Binary  bool
	Cut     bool
	RawURL  string
	Deleted bool        // only the last version has it
	Change  *fileChange // since the last version; nil without one
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
	session, err := v.client.Session(v.ctx(), f.Thread)
	if err != nil {
		return nil, err
	}
	if err := f.readVersions(v, session); err != nil {
		return nil, err
	}
	files := v.client.Files(f.Thread)
	e := &schemas.FileEntry{Type: "folder"}
	if f.Path != "" {
		if e, err = files.Stat(v.ctx(), f.Path); errors.Is(err, schemas.ErrNotFound) && len(f.Versions) > 0 {
			return p, f.readDeleted(v, session, err)
		} else if err != nil {
			return nil, err
		}
	}
	if e.Type != "folder" {
		return p, f.readFile(v, session, files, e)
	}
	return p, f.readFolder(v, session, files, limit)
}

// openable reports that a page can show a path: it is text, and not of a type that has no content.
func openable(name, kind string) bool {
	return utf8.ValidString(name) && !strings.ContainsRune(name, utf8.RuneError) && (kind == "file" || kind == "folder")
}

// readFolder reads the entries of a folder.
func (f *filesView) readFolder(v *visit, s *client.Session, files *client.Files, limit int) error {
	base := threadURL(f.Thread) + "/files"
	f.Changes = &workspaceChanges{}
	if len(f.Versions) > 0 {
		f.Changes = compare(v.ctx(), s, base)
	}
	for e, err := range files.List(v.ctx(), f.Path) {
		if err != nil {
			return err
		}
		if len(f.Entries) == limit {
			f.More = moreLink(base+"/"+escapePath(f.Path), limit)
			break
		}
		row := fileRow{FileEntry: e, Name: path.Base(e.Path), Change: f.Changes.what[e.Path], Below: f.Changes.below[e.Path]}
		if openable(e.Path, e.Type) {
			row.URL = base + "/" + escapePath(e.Path)
		}
		f.Entries = append(f.Entries, row)
	}
	f.Deleted = f.Changes.deletedIn(f.Path)
	return nil
}

// readDeleted reads a file that only the last version has. notFound is the error where it has none.
func (f *filesView) readDeleted(v *visit, s *client.Session, notFound error) error {
	change, err := compareFile(v.ctx(), s, f.Path)
	if err != nil {
		return notFound
	}
	f.File = &fileView{FileEntry: schemas.FileEntry{Path: f.Path, Type: "file"}, Deleted: true, Change: change}
	return nil
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
func (f *filesView) readVersions(v *visit, s *client.Session) (err error) {
	f.Versions, err = s.Versions(v.ctx())
	if errors.Is(err, schemas.ErrInvalidArgument) {
		f.NoVersions = schemas.AsError(err).Error()
		return nil
	}
	return err
}

// readFile reads the beginning of a file.
func (f *filesView) readFile(v *visit, s *client.Session, files *client.Files, e *schemas.FileEntry) error {
	f.File = &fileView{FileEntry: *e, RawURL: apiPath + "threads/" + f.Thread + "/files/" + escapePath(f.Path)}
	if e.Type != "file" {
		return nil
	}
	if len(f.Versions) > 0 {
		f.File.Change, _ = compareFile(v.ctx(), s, f.Path) // it says why
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
