package gateway

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// entryList is entries of a workspace.
type entryList struct {
	// Entries are the entries, or the lines that were found.
	Entries []schemas.FileEntry `json:"entries"`
	// Truncated says that there are more.
	Truncated bool `json:"truncated,omitempty"`
}

// transferred is what an upload has written.
type transferred struct {
	// Files and Bytes count the content of the archive.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// moveBody is a file or folder to rename.
type moveBody struct {
	// From is the path that it has, To the one that it gets, both relative to the workspace. Required.
	From string `json:"from"`
	To   string `json:"to"`
}

func v1Files() []endpoint {
	const (
		thread  = "/v1/threads/{thread}"
		file    = thread + "/files/{path...}"
		bytes   = "application/octet-stream"
		archive = "application/x-tar"
	)
	return []endpoint{
		{route: route{"GET " + file, schemas.ScopeRead, v1ReadFile}, summary: "The content of a file, streamed", gives: bytes},
		{
			route:   route{"PUT " + file, schemas.ScopeExec, v1WriteFile},
			summary: "Put a file in place as a whole, with missing folders; streamed", content: bytes, answer: schemas.FileEntry{},
			query: []string{"mode: permissions in octal", "append: true adds to the end of the file instead"}, status: http.StatusCreated,
		},
		{
			route: route{"DELETE " + file, schemas.ScopeExec, v1RemoveFile}, summary: "Remove a file or a folder", status: http.StatusNoContent,
			query: []string{"recursive: true removes a folder with its content"},
		},
		{route: route{"GET " + thread + "/stat/{path...}", schemas.ScopeRead, v1Stat}, summary: "What a path is", answer: schemas.FileEntry{}},
		{route: route{"GET " + thread + "/entries/{path...}", schemas.ScopeRead, v1Entries}, summary: "The entries of a folder, by name",
			answer: entryList{}},
		{route: route{"PUT " + thread + "/entries/{path...}", schemas.ScopeExec, v1Mkdir}, summary: "Make a folder, with missing ones",
			answer: schemas.FileEntry{}, status: http.StatusCreated},
		{
			route:   route{"GET " + thread + "/search/{path...}", schemas.ScopeRead, v1Search},
			summary: "Files by their name, or lines by their text", answer: entryList{},
			query: []string{"name: a pattern with * ? [ ]", "text: what a line must contain", "limit: at most so many, 1000 unless set"},
		},
		{
			route: route{"GET " + thread + "/watch/{path...}", schemas.ScopeRead, v1Watch}, gives: "text/event-stream",
			summary: "What changes at or below a path, as a stream; its first event is ready",
		},
		{route: route{"POST " + thread + "/move", schemas.ScopeExec, v1Move}, summary: "Rename a file or folder; a file is replaced",
			body: moveBody{}, answer: schemas.FileEntry{}},
		{route: route{"GET " + thread + "/archive/{path...}", schemas.ScopeRead, v1Download},
			summary: "A file, or a folder with its content, as tar; streamed", gives: archive},
		{route: route{"PUT " + thread + "/archive/{path...}", schemas.ScopeExec, v1Upload},
			summary: "Extract a tar into a folder; streamed", content: archive, answer: transferred{}},
	}
}

// files are the files of the thread, and the path of a request.
func (c *call) files() (*client.Files, string) {
	return c.client.Files(c.thread()), c.r.PathValue("path")
}

func v1ReadFile(c *call) error { return c.sendFile(c.files()) }

// checkPutHeaders returns an error for a request whose headers ask for
// something else than to store its body as the whole file: a part of it, a
// condition, or another form. Without the error, the body would replace the
// file all the same. RFC 9110, section 14.5, wants 400 for a part.
func (c *call) checkPutHeaders() error {
	for _, name := range []string{"Content-Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if c.r.Header.Get(name) != "" {
			return schemas.Errorf(schemas.CodeInvalidArgument, "the header %s is not supported here: send the content as a whole without it, or add to a file with ?append=true", name).
				With("path", name)
		}
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the content has the encoding %.40q: send it without one", coding).With("path", "Content-Encoding")
	}
	return nil
}

func v1WriteFile(c *call) error {
	if err := c.checkPutHeaders(); err != nil {
		return err
	}
	opts := []client.FileOption{client.FileParents()}
	if text := c.query("mode"); text != "" {
		mode, err := strconv.ParseUint(text, 8, 12)
		if err != nil {
			return schemas.Errorf(schemas.CodeInvalidArgument, "mode: %.20q is no octal number such as 644", text).With("path", "mode")
		}
		opts = append(opts, client.FileMode(fs.FileMode(mode)))
	}
	add, err := c.flag("append")
	if err != nil {
		return err
	}
	f, path := c.files()
	write := f.Write
	if add {
		write = f.Append
	}
	e, err := write(c.r.Context(), path, c.r.Body, opts...)
	return give(c, http.StatusCreated, e, cutBody(err))
}

// cutBody is the error of a body that did not arrive whole.
func cutBody(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return bodyError(err)
	}
	return err
}

func v1RemoveFile(c *call) error {
	recursive, err := c.flag("recursive")
	if err != nil {
		return err
	}
	f, path := c.files()
	if recursive {
		return c.done(f.RemoveAll(c.r.Context(), path))
	}
	return c.done(f.Remove(c.r.Context(), path))
}

func v1Stat(c *call) error {
	f, path := c.files()
	e, err := f.Stat(c.r.Context(), path)
	return give(c, http.StatusOK, e, err)
}

func v1Entries(c *call) error {
	f, path := c.files()
	list := entryList{Entries: []schemas.FileEntry{}}
	for e, err := range f.List(c.r.Context(), path) {
		if err != nil {
			return err
		}
		if list.Truncated = len(list.Entries) == maxListed; list.Truncated {
			break
		}
		list.Entries = append(list.Entries, e)
	}
	writeJSON(c.w, http.StatusOK, list)
	return nil
}

// v1Watch has no ids: a reader that comes back lists the folder first.
func v1Watch(c *call) error {
	f, path := c.files()
	return c.stream(func(ctx context.Context, send func(streamEvent) error) error {
		for e, err := range f.Watch(ctx, path) {
			if err != nil {
				return err
			}
			if err := send(streamEvent{data: e}); err != nil {
				return err
			}
		}
		return nil
	})
}

func v1Mkdir(c *call) error {
	f, path := c.files()
	e, err := f.Mkdir(c.r.Context(), path, client.FileParents())
	return give(c, http.StatusCreated, e, err)
}

func v1Search(c *call) error {
	limit, err := c.queryNumber("limit", 1000, 1, 1000)
	if err != nil {
		return err
	}
	f, path := c.files()
	found, more, err := f.Search(c.r.Context(), client.FileQuery{Path: path, Name: c.query("name"), Text: c.query("text"), Limit: limit})
	return give(c, http.StatusOK, entryList{append([]schemas.FileEntry{}, found...), more}, err)
}

func v1Move(c *call) error {
	var b moveBody
	if err := c.readJSON(&b); err != nil {
		return err
	}
	f, _ := c.files()
	e, err := f.Move(c.r.Context(), b.From, b.To)
	return give(c, http.StatusOK, e, err)
}

func v1Download(c *call) error {
	f, path := c.files()
	content, err := f.Download(c.r.Context(), path)
	if err != nil {
		return err
	}
	defer content.Close()
	c.w.Header().Set("Content-Type", "application/x-tar")
	if _, err := io.Copy(c.w, metered{content, c.quota}); err != nil {
		panic(http.ErrAbortHandler) // an archive that is cut must not look whole
	}
	return nil
}

func v1Upload(c *call) error {
	if err := c.checkPutHeaders(); err != nil {
		return err
	}
	f, path := c.files()
	files, size, err := f.Upload(c.r.Context(), path, c.r.Body)
	return give(c, http.StatusOK, transferred{files, size}, cutBody(err))
}
