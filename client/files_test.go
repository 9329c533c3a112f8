package client_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// workspaceOf is the folder of a thread's workspace on the worker.
func workspaceOf(d *caller, thread string) string {
	return filepath.Join(d.cell.dir, "workspaces", schemas.DefaultTenant, thread)
}

// noTemps fails the test for temporary files in a workspace.
func noTemps(d *caller, thread string) {
	d.t.Helper()
	d.must(filepath.WalkDir(workspaceOf(d, thread), func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, ".tmp") {
			d.t.Errorf("%s is left", path)
		}
		return err
	}))
}

func paths(entries []schemas.FileEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Path)
	}
	return all
}

func TestFilesAreWrittenReadAndFound(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	e, err := f.WriteFile(d.ctx, "a/b.txt", []byte("hello\nworld\n"), client.FileParents(), client.FileMode(0o640))
	d.must(err)
	d.equal("entry", []any{e.Path, e.Type, e.Mode, e.Size}, []any{"a/b.txt", "file", "640", int64(12)})
	got, err := f.ReadFile(d.ctx, "a/b.txt")
	d.must(err)
	d.equal("content", string(got), "hello\nworld\n")
	e, err = f.Append(d.ctx, "a/b.txt", strings.NewReader("again\n"))
	d.must(err)
	d.equal("size after append", e.Size, int64(18))
	part, err := f.Open(d.ctx, "a/b.txt", client.FilePart{Offset: 6, Limit: 5})
	d.must(err)
	got, err = io.ReadAll(part)
	d.must(errors.Join(err, part.Close()))
	d.equal("part", string(got), "world")
	_, err = f.WriteFile(d.ctx, "a/b.txt", []byte("new world"))
	d.must(err)
	e, err = f.Stat(d.ctx, "a/b.txt")
	d.must(err)
	d.equal("after another write", []any{e.Mode, e.Size}, []any{"640", int64(9)})

	for _, name := range []string{"c", "c/d", "new\nline"} {
		_, err = f.Mkdir(d.ctx, name)
		d.must(err)
	}
	_, err = f.Move(d.ctx, "a/b.txt", "c/d/e.txt")
	d.must(err)
	var all []schemas.FileEntry
	for e, err := range f.List(d.ctx, "") {
		d.must(err)
		all = append(all, e)
	}
	d.equal("list", paths(all), []string{"a", "c", "new\nline"})
	found, more, err := f.Search(d.ctx, client.FileQuery{Name: "*.txt", Text: "world"})
	d.must(err)
	d.equal("search", []any{paths(found), found[0].Line, found[0].Text, more}, []any{[]string{"c/d/e.txt"}, 1, "new world", false})
	d.must(f.Remove(d.ctx, "a"))
	d.must(f.RemoveAll(d.ctx, "c"))
	_, err = f.Stat(d.ctx, "c/d")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	noTemps(d, "t1")
}

func TestLargeContentArrivesWhole(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	for _, size := range []int{0, 1, schemas.MaxFilePiece - 1, schemas.MaxFilePiece, schemas.MaxFilePiece + 1, 20*schemas.MaxFilePiece + 7} {
		content := make([]byte, size)
		_, err := rand.Read(content)
		d.must(err)
		e, err := f.WriteFile(d.ctx, "large", content)
		d.must(err)
		d.equal("size", e.Size, int64(size))
		got, err := f.ReadFile(d.ctx, "large")
		d.must(err)
		if !bytes.Equal(got, content) {
			t.Fatalf("%d bytes differ from the %d that were written", len(got), size)
		}
	}
}

// A path that leads out, by itself or by a link, is refused, and so is what is no file.
func TestBadPathsAreRefused(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.WriteFile(d.ctx, "file", nil)
	d.must(err)
	dir := workspaceOf(d, "t1")
	outside := filepath.Join(d.cell.dir, "outside")
	d.must(os.WriteFile(outside, []byte("secret"), 0o600))
	for name, target := range map[string]string{"out": outside, "up": "../../../outside", "dir": d.cell.dir, "loop": "loop"} {
		d.must(os.Symlink(target, filepath.Join(dir, name)))
	}
	d.must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for path, want := range map[string]schemas.Code{
		"../x": schemas.CodeInvalidArgument, "a/../../x": schemas.CodeInvalidArgument, "/etc/passwd": schemas.CodeInvalidArgument, "nul\x00": schemas.CodeInvalidArgument,
		strings.Repeat("x", 300): schemas.CodeInvalidArgument, "out": schemas.CodeInvalidArgument, "up": schemas.CodeInvalidArgument,
		"dir/outside": schemas.CodeInvalidArgument, "loop": schemas.CodeInvalidArgument, "pipe": schemas.CodeInvalidArgument,
		"missing": schemas.CodeNotFound, "file/below": schemas.CodeInvalidArgument, ".": schemas.CodeInvalidArgument,
	} {
		_, err := f.ReadFile(d.ctx, path)
		if schemas.CodeOf(err) != want {
			t.Errorf("read %.40q: error %v, want %s", path, err, want)
		}
		_, err = f.Append(d.ctx, path, strings.NewReader("more"))
		if want != schemas.CodeNotFound && schemas.CodeOf(err) != want {
			t.Errorf("append to %.40q: error %v, want %s", path, err, want)
		}
	}
	for _, path := range []string{"pipe", "dir/outside", "."} {
		_, err := f.WriteFile(d.ctx, path, []byte("x"))
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	}
	// A link is replaced: what it led to stays.
	_, err = f.WriteFile(d.ctx, "out", []byte("x"))
	d.must(err)
	got, err := os.ReadFile(outside)
	d.must(err)
	d.equal("file outside", string(got), "secret")
	noTemps(d, "t1")
}

func TestFoldersGoInAndOutAsTar(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	long := strings.Repeat("long/", 60) + "name"
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	put := func(h *tar.Header, content string) {
		h.Size = int64(len(content))
		d.must(w.WriteHeader(h))
		_, err := w.Write([]byte(content))
		d.must(err)
	}
	put(&tar.Header{Name: "sub/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	put(&tar.Header{Name: "sub/tool", Typeflag: tar.TypeReg, Mode: 0o755}, "#!/bin/sh\n")
	put(&tar.Header{Name: long, Typeflag: tar.TypeReg, Mode: 0o644}, strings.Repeat("x", 1000))
	put(&tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "sub/tool"}, "")
	d.must(w.Close())
	files, size, err := f.Upload(d.ctx, "in", &in)
	d.must(err)
	d.equal("uploaded", []int64{files, size}, []int64{4, 1010})
	r, err := f.Download(d.ctx, "in")
	d.must(err)
	defer r.Close()
	var names []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		d.must(err)
		if !strings.HasSuffix(h.Name, "long/") {
			names = append(names, h.Name)
		}
		if h.Name == "in/sub/tool" {
			content, err := io.ReadAll(tr)
			d.must(err)
			d.equal("content", string(content), "#!/bin/sh\n")
			d.equal("mode", h.Mode, int64(0o755))
		}
	}
	slices.Sort(names)
	d.equal("names", names, []string{"in/", "in/link", "in/" + long, "in/sub/", "in/sub/tool"})
	// Names that lead out are refused, also through a link that came before.
	for _, h := range [][2]string{{"../out", ""}, {"evil/x", "../../.."}} {
		in.Reset()
		w = tar.NewWriter(&in)
		if h[1] != "" {
			put(&tar.Header{Name: "evil", Typeflag: tar.TypeSymlink, Linkname: h[1]}, "")
		}
		put(&tar.Header{Name: h[0], Typeflag: tar.TypeReg, Mode: 0o644}, "x")
		d.must(w.Close())
		_, _, err = f.Upload(d.ctx, "in", &in)
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	}
	_, _, err = f.Upload(d.ctx, "in", strings.NewReader("this is no archive"))
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	noTemps(d, "t1")
}

func TestWatchReportsChanges(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.WriteFile(d.ctx, "a", []byte("1"))
	d.must(err)
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	var seen []string
	for e, err := range f.Watch(ctx, "") {
		d.must(err)
		seen = append(seen, e.Change+" "+e.Path)
		switch e.Change {
		case "ready":
			_, err = f.WriteFile(d.ctx, "b", []byte("2"))
		case "created":
			_, err = f.WriteFile(d.ctx, "a", []byte("changed"))
		case "changed":
			err = f.Remove(d.ctx, "b")
		}
		d.must(err)
		if e.Change == "removed" {
			break
		}
	}
	d.equal("changes", seen, []string{"ready .", "created b", "changed a", "removed b"})
}

// slowly gives some content, calls then, and waits for the end of ctx.
type slowly struct {
	ctx     context.Context
	content io.Reader
	then    func()
}

func (s *slowly) Read(p []byte) (int, error) {
	if n, err := s.content.Read(p); err == nil {
		return n, nil
	}
	s.then()
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// A caller that leaves in the middle of a write leaves the old file, and nothing else.
func TestCanceledWriteLeavesNothing(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.WriteFile(d.ctx, "file", []byte("old"))
	d.must(err)
	ctx, cancel := context.WithCancel(d.ctx)
	_, err = f.Write(ctx, "file", &slowly{ctx, bytes.NewReader(make([]byte, 3*schemas.MaxFilePiece)), cancel})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	got, err := f.ReadFile(d.ctx, "file")
	d.must(err)
	d.equal("content", string(got), "old")
	noTemps(d, "t1")
}

// Content that went in or out whole is reported by an event.
func TestTransfersAreReported(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.WriteFile(d.ctx, "file", []byte("12345"))
	d.must(err)
	_, err = f.ReadFile(d.ctx, "file")
	d.must(err)
	var seen []schemas.FileTransfer
	err = d.Events(d.ctx, client.EventQuery{Thread: "t1", Follow: true}, func(ev *schemas.Event) error {
		if ev.Type != schemas.TypeFileUploaded && ev.Type != schemas.TypeFileDownloaded {
			return nil
		}
		var tr schemas.FileTransfer
		d.must(ev.Decode(&tr))
		d.equal("type", ev.Type, map[schemas.FileOp]schemas.EventType{schemas.FileWrite: schemas.TypeFileUploaded, schemas.FileRead: schemas.TypeFileDownloaded}[tr.Op])
		if seen = append(seen, tr); len(seen) == 2 {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	for _, tr := range seen {
		d.equal("path, files and bytes", []any{tr.Path, tr.Files, tr.Bytes}, []any{"file", int64(1), int64(5)})
	}
}

// A folder with more names than a reply holds is listed whole, in order.
func TestLargeFolderIsListedInParts(t *testing.T) {
	t.Parallel()
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.Mkdir(d.ctx, "many")
	d.must(err)
	const n = 2*schemas.MaxFileEntries + 5
	for i := range n {
		d.must(os.WriteFile(filepath.Join(workspaceOf(d, "t1"), "many", strings.Repeat("\x01", 100)+strconv.Itoa(i)), nil, 0o600))
	}
	var all []string
	for e, err := range f.List(d.ctx, "many") {
		d.must(err)
		all = append(all, e.Path)
	}
	d.equal("entries, sorted", []any{len(all), slices.IsSorted(all)}, []any{n, true})
}

// The end of a session ends its transfers, and a session that has ended is named.
func TestEndOfSessionEndsTransfers(t *testing.T) {
	d := newCaller(t, "w1")
	s, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "t1"})
	d.must(err)
	f := s.Files()
	for e, err := range f.Watch(d.ctx, "") {
		if err != nil {
			testkit.WantCode(t, err, schemas.CodeSessionExpired)
			break
		}
		d.equal("change", e.Change, "ready")
		_, err = s.Stop(d.ctx)
		d.must(err)
	}
	_, err = f.Stat(d.ctx, "")
	testkit.WantCode(t, err, schemas.CodeSessionExpired)
}
