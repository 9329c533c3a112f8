package mcp

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

type readFileInput struct {
	target
	Path     string `json:"path" jsonschema:"Path of the file, relative to the workspace."`
	Offset   int64  `json:"offset,omitempty" jsonschema:"Where to begin, in bytes: next_offset of the last result. Default: the beginning."`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"Most bytes to return."`
	Encoding string `json:"encoding,omitempty" jsonschema:"How the content is returned: text, or base64 for binary files."`
}

type fileContent struct {
	Path string `json:"path"`
	output
}

type writeFileInput struct {
	target
	Path     string `json:"path" jsonschema:"Path of the file, relative to the workspace. Missing folders are made."`
	Content  string `json:"content" jsonschema:"The whole new content, or with append what to add; at most 1 MiB."`
	Encoding string `json:"encoding,omitempty" jsonschema:"How content is given: text, or base64 for binary files."`
	Append   bool   `json:"append,omitempty" jsonschema:"Adds to the end of the file. Default: replaces the file as a whole."`
	Mode     string `json:"mode,omitempty" jsonschema:"Permissions in octal, such as 755. Default: those of the file that is replaced, 644 for a new one."`
}

type fileInfo struct {
	Path string `json:"path" jsonschema:"Path relative to the workspace."`
	Type string `json:"type" jsonschema:"file, folder, symlink, fifo, socket or device."`
	Size int64  `json:"size" jsonschema:"Size in bytes."`
	Mode string `json:"mode,omitempty" jsonschema:"Permissions in octal."`
	// Target is where a link leads.
	Target string `json:"target,omitempty" jsonschema:"Where a symlink leads."`
}

func infoOf(e *schemas.FileEntry) fileInfo {
	return fileInfo{Path: e.Path, Type: e.Type, Size: e.Size, Mode: e.Mode, Target: e.Target}
}

type listFilesInput struct {
	target
	Path  string `json:"path,omitempty" jsonschema:"Path of the folder, relative to the workspace. Default: the workspace."`
	After string `json:"after,omitempty" jsonschema:"Continues a list: next_after of the last result."`
	Limit int    `json:"limit,omitempty" jsonschema:"Most entries to return."`
}

type fileList struct {
	Entries   []fileInfo `json:"entries" jsonschema:"The entries of the folder itself, by name."`
	NextAfter string     `json:"next_after,omitempty" jsonschema:"There are more: go on with this as after."`
}

type searchInput struct {
	target
	Path  string `json:"path,omitempty" jsonschema:"Folder to search below, relative to the workspace. Default: the workspace."`
	Name  string `json:"name,omitempty" jsonschema:"Pattern of names with * ? [ ], such as *.go. It fits the last part of a path. Default: all."`
	Text  string `json:"text,omitempty" jsonschema:"Text that a line must contain; no regular expression. Binary files are left out. Default: files and folders are found, not lines."`
	Limit int    `json:"limit,omitempty" jsonschema:"Most matches to return."`
}

type match struct {
	Path string `json:"path" jsonschema:"Path relative to the workspace."`
	Type string `json:"type,omitempty" jsonschema:"file, folder, symlink, fifo, socket or device."`
	Line int    `json:"line,omitempty" jsonschema:"Number of the line, from 1."`
	Text string `json:"text,omitempty" jsonschema:"First 256 bytes of the line."`
}

type matchList struct {
	Matches []match `json:"matches"`
	More    bool    `json:"more,omitempty" jsonschema:"There are more matches than limit: narrow the search."`
}

// limitOfList is a page of entries: short enough for the context of a model.
func limitOfList() rules { return rules{"limit": between(1, schemas.MaxFileEntries, 200)} }

func (s *server) addFileTools() {
	add(s, tool{
		name: "read_file", title: "Read a file", reads: true,
		description: "Read a file of the workspace, or a part of it. A longer file is read on at next_offset.",
		input: rules{
			"path": filled, "offset": atLeast(0), "max_bytes": between(4, maxBytes, defaultBytes), "encoding": oneOf(encodingText, encodingBase64),
		},
	}, s.readFile)
	add(s, tool{
		name: "write_file", title: "Write a file", destroys: true,
		description: "Write a file of the workspace: replace it as a whole, or add to its end. To change a part of a file, use edit_file.",
		input:       rules{"path": filled, "encoding": oneOf(encodingText, encodingBase64), "mode": matches(schemas.FileModePattern)},
	}, s.writeFile)
	add(s, tool{
		name: "edit_file", title: "Edit a file", destroys: true,
		description: "Replace text in a file of the workspace. Each edit replaces old_text, which must be in the file exactly once, unless all is set. " +
			"Either all edits are made, or none. The file is at most 4 MiB.",
		input: rules{"path": filled, "edits": filled},
	}, s.editFile)
	add(s, tool{
		name: "list_files", title: "List a folder", reads: true,
		description: "List the entries of one folder of the workspace, by name. search_files looks into folders below.",
		input:       limitOfList(),
	}, s.listFiles)
	add(s, tool{
		name: "search_files", title: "Search files", reads: true,
		description: "Find files by name, or lines by their text, below a folder of the workspace.",
		input:       limitOfList(),
	}, s.searchFiles)
}

// files are the files of a call's thread. Errors: invalid_argument, those of ensure.
func (s *server) files(ctx context.Context, t target) (*client.Files, error) {
	thread, err := s.thread(t)
	if err != nil {
		return nil, err
	}
	return s.Client.Files(thread).WithTemplate(s.Template), s.ensure(ctx, thread)
}

// readPart reads at most n bytes of a file, and reports whether there is more.
func readPart(ctx context.Context, files *client.Files, path string, offset, n int64) (data []byte, more bool, err error) {
	r, err := files.Open(ctx, path, client.FilePart{Offset: offset, Limit: n + 1})
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	if data, err = io.ReadAll(io.LimitReader(r, n+1)); err != nil {
		return nil, false, err
	}
	more = int64(len(data)) > n
	return data[:min(int64(len(data)), n)], more, nil
}

func (s *server) readFile(ctx context.Context, _ *sdk.CallToolRequest, in readFileInput) (fileContent, error) {
	files, err := s.files(ctx, in.target)
	if err != nil {
		return fileContent{}, err
	}
	data, more, err := readPart(ctx, files, in.Path, in.Offset, int64(in.MaxBytes))
	if err != nil {
		return fileContent{}, err
	}
	if more && in.Encoding != encodingBase64 {
		data = wholeEnd(data)
	}
	out := fileContent{in.Path, piece(data, in.Offset, in.Encoding)}
	out.More = more
	return out, nil
}

// writeFile writes a file. Errors: those of client.Files.Write, too_large.
func (s *server) writeFile(ctx context.Context, _ *sdk.CallToolRequest, in writeFileInput) (fileInfo, error) {
	data, err := decode("content", in.Content, in.Encoding)
	if err != nil {
		return fileInfo{}, err
	}
	files, err := s.files(ctx, in.target)
	if err != nil {
		return fileInfo{}, err
	}
	opts := []client.FileOption{client.FileParents()}
	if in.Mode != "" {
		mode, err := strconv.ParseUint(in.Mode, 8, 12)
		if err != nil {
			return fileInfo{}, schemas.Errorf(schemas.CodeInvalidArgument, "mode: %w", err)
		}
		opts = append(opts, client.FileMode(fs.FileMode(mode)))
	}
	put := files.Write
	if in.Append {
		put = files.Append
	}
	e, err := put(ctx, in.Path, bytes.NewReader(data), opts...)
	if err != nil {
		return fileInfo{}, err
	}
	return infoOf(e), nil
}

func (s *server) listFiles(ctx context.Context, _ *sdk.CallToolRequest, in listFilesInput) (fileList, error) {
	list := fileList{Entries: []fileInfo{}}
	files, err := s.files(ctx, in.target)
	if err != nil {
		return list, err
	}
	for e, err := range files.List(ctx, in.Path) {
		if err != nil {
			return list, err
		}
		if in.After != "" && path.Base(e.Path) <= in.After {
			continue
		}
		if len(list.Entries) == in.Limit {
			list.NextAfter = path.Base(list.Entries[in.Limit-1].Path)
			break
		}
		list.Entries = append(list.Entries, infoOf(&e))
	}
	return list, nil
}

func (s *server) searchFiles(ctx context.Context, _ *sdk.CallToolRequest, in searchInput) (matchList, error) {
	list := matchList{Matches: []match{}}
	files, err := s.files(ctx, in.target)
	if err != nil {
		return list, err
	}
	found, more, err := files.Search(ctx, client.FileQuery{Path: in.Path, Name: in.Name, Text: in.Text, Limit: in.Limit})
	if err != nil {
		return list, err
	}
	for _, e := range found {
		list.Matches = append(list.Matches, match{Path: e.Path, Type: e.Type, Line: e.Line, Text: strings.ToValidUTF8(e.Text, "\uFFFD")})
	}
	list.More = more
	return list, nil
}
