package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// operations are all that take a path, with nothing but their error.
func operations(ctx context.Context, f *client.Files) map[string]func(path string) error {
	content := func() io.Reader { return strings.NewReader("content") }
	return map[string]func(path string) error{
		"stat": func(p string) error { return errorOf(f.Stat(ctx, p)) },
		"list": func(p string) error {
			for _, err := range f.List(ctx, p) {
				return err
			}
			return nil
		},
		"search": func(p string) error {
			_, _, err := f.Search(ctx, client.FileQuery{Path: p})
			return err
		},
		"mkdir":      func(p string) error { return errorOf(f.Mkdir(ctx, p, client.FileParents())) },
		"remove":     func(p string) error { return f.Remove(ctx, p) },
		"remove all": func(p string) error { return f.RemoveAll(ctx, p) },
		"move":       func(p string) error { return errorOf(f.Move(ctx, p, "to")) },
		"move to":    func(p string) error { return errorOf(f.Move(ctx, "file", p)) },
		"write":      func(p string) error { return errorOf(f.Write(ctx, p, content(), client.FileParents())) },
		"append":     func(p string) error { return errorOf(f.Append(ctx, p, content(), client.FileParents())) },
		"read":       func(p string) error { return errorOf(f.ReadFile(ctx, p)) },
		"download":   func(p string) error { return errorOf(f.Download(ctx, p)) },
		"copy in":    func(p string) error { _, _, err := f.CopyIn(ctx, "files_test.go", p); return err },
		"copy out":   func(p string) error { _, _, err := f.CopyOut(ctx, p, "/dev/null/none"); return err },
		"upload":     func(p string) error { _, _, err := f.Upload(ctx, p, content()); return err },
		"watch": func(p string) error {
			for _, err := range f.Watch(ctx, p) {
				return err
			}
			return nil
		},
	}
}

// Every operation refuses a name that no workspace can contain, and leaves nothing behind.
func TestBadNamesAreRefused(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.WriteFile(d.ctx, "file", []byte("old"))
	d.must(err)
	for op, do := range operations(d.ctx, f) {
		for _, name := range []string{
			"../x", "a/../../x", "../../../../../../etc/passwd", "/etc/passwd", "nul\x00", "a/nul\x00/b",
			strings.Repeat("n", 300), "a/" + strings.Repeat("n", 300), strings.Repeat("long/", 1000),
		} {
			if err := do(name); schemas.CodeOf(err) != schemas.CodeInvalidArgument {
				t.Errorf("%s %.40q: error %v, want %s", op, name, err, schemas.CodeInvalidArgument)
			}
		}
	}
	var names []string
	for e, err := range f.List(d.ctx, "") {
		d.must(err)
		names = append(names, e.Path)
	}
	d.equal("names in the workspace", names, []string{"file"})
	noTemps(d, "t1")
}

// A new line is part of a name as any other byte, and shows as such.
func TestNameWithANewLine(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	const name = "new\nline\t\x1b[2J"
	_, err := f.WriteFile(d.ctx, name, []byte("content"))
	d.must(err)
	dir := t.TempDir()
	_, _, err = f.CopyOut(d.ctx, name, dir)
	d.must(err)
	_, _, err = f.CopyIn(d.ctx, filepath.Join(dir, name), "copy")
	d.must(err)
	got, err := f.ReadFile(d.ctx, "copy")
	d.must(err)
	d.equal("content", string(got), "content")
	d.must(f.Remove(d.ctx, name))
}

// Many changes at once whose lines are longer than a message of NATS arrive whole.
func TestWatchOfLongNames(t *testing.T) {
	t.Parallel()
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.Mkdir(d.ctx, "many")
	d.must(err)
	const n = 1500
	created := 0
	for e, err := range f.Watch(d.ctx, "many") {
		d.must(err)
		if e.Change == "created" {
			created++
		}
		if e.Change == "ready" {
			for i := range n { // each < takes six bytes in JSON
				d.must(os.WriteFile(filepath.Join(workspaceOf(d, "t1"), "many", strings.Repeat("<", 240)+strconv.Itoa(i)), nil, 0o600))
			}
		}
		if created == n {
			break
		}
	}
}

// What is no file on this machine is neither read nor replaced.
func TestCopiesOfNamedPipesAndDevices(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	_, err := f.WriteFile(d.ctx, "pipe", []byte("content"))
	d.must(err)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	d.must(syscall.Mkfifo(pipe, 0o600))
	d.must(os.Symlink(pipe, filepath.Join(dir, "link")))
	_, _, err = f.CopyIn(d.ctx, os.DevNull, "in")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	_, _, err = f.CopyIn(d.ctx, pipe, "in")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	for _, local := range []string{pipe, filepath.Join(dir, "link")} { // not a device: a fault would replace it
		_, _, err = f.CopyOut(d.ctx, "pipe", local)
		testkit.WantCode(t, err, schemas.CodeConflict)
	}
	_, _, err = f.CopyOut(d.ctx, "pipe", dir) // as dir/pipe
	testkit.WantCode(t, err, schemas.CodeConflict)
	_, _, err = f.CopyOut(d.ctx, "pipe", filepath.Join(pipe, "x"))
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	_, _, err = f.CopyOut(d.ctx, "", dir+"/.") // a folder with the file pipe
	testkit.WantCode(t, err, schemas.CodeConflict)
	left, err := os.ReadDir(dir)
	d.must(err)
	d.equal("names that are left", len(left), 2)
}

// A link that is named is copied as a link, wherever it leads: what is there does not leave its machine.
func TestCopiesOfLinks(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	dir := t.TempDir()
	d.must(os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	d.must(os.WriteFile(filepath.Join(dir, "folder", "file"), []byte("content"), 0o600))
	targets := map[string]string{"abs": "/etc/passwd", "dangling": "no/such", "file": "folder/file", "sub": "folder"}
	_, err := f.Mkdir(d.ctx, "in")
	d.must(err)
	_, err = f.WriteFile(d.ctx, "taken", nil)
	d.must(err)
	for name, target := range targets {
		d.must(os.Symlink(target, filepath.Join(dir, name)))
		for to, want := range map[string]string{"in": "in/" + name, "taken": "taken", "new-" + name: "new-" + name} {
			files, size, err := f.CopyIn(d.ctx, filepath.Join(dir, name), to)
			d.must(err)
			d.equal("files and bytes", []int64{files, size}, []int64{1, 0})
			e, err := f.Stat(d.ctx, want)
			d.must(err)
			d.equal("copy in of "+name+" to "+to, e.Type+" "+e.Target, "symlink "+target)
		}
	}
	_, _, err = f.CopyIn(d.ctx, filepath.Join(dir, "abs"), "none/abs")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, _, err = f.CopyIn(d.ctx, filepath.Join(dir, "sub")+"/", "followed")
	d.must(err)
	_, err = f.Stat(d.ctx, "followed/file")
	d.must(err)
	_, _, err = f.CopyIn(d.ctx, filepath.Join(dir, "file")+"/", "x")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)

	out := t.TempDir()
	d.must(os.WriteFile(filepath.Join(out, "taken"), nil, 0o600))
	for name, target := range targets {
		for local, want := range map[string]string{"": name, "taken": "taken", "new-" + name: "new-" + name} {
			d.must(errors.Join(os.Remove(filepath.Join(out, "taken")), os.WriteFile(filepath.Join(out, "taken"), nil, 0o600))) // a link there would be followed
			files, size, err := f.CopyOut(d.ctx, "in/"+name, filepath.Join(out, local))
			d.must(err)
			d.equal("files and bytes", []int64{files, size}, []int64{1, 0})
			got, err := os.Readlink(filepath.Join(out, want))
			d.must(err)
			d.equal("copy out of "+name+" to "+local, got, target)
		}
	}
	d.must(os.MkdirAll(filepath.Join(out, "full", "abs"), 0o700))
	_, _, err = f.CopyOut(d.ctx, "in/abs", filepath.Join(out, "full"))
	testkit.WantCode(t, err, schemas.CodeConflict)
	_, _, err = f.CopyIn(d.ctx, filepath.Join(dir, "folder"), "in")
	d.must(err)
	for from, want := range map[string]string{"in/sub/": "sub/file", "in/sub/.": "file"} {
		d.must(os.RemoveAll(filepath.Join(out, "sub")))
		_, _, err = f.CopyOut(d.ctx, from, out)
		d.must(err)
		got, err := os.ReadFile(filepath.Join(out, want))
		d.must(err)
		d.equal("content of "+want, string(got), "content")
	}
	_, _, err = f.CopyOut(d.ctx, "in/dangling/", out)
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, _, err = f.CopyOut(d.ctx, "in/file/", out)
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

// A file is copied out whatever its name is, over a link to where that leads, and beside what is there.
func TestCopyOutOfAnyName(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	long := strings.Repeat("n", 250)
	for _, name := range []string{long, "a", "a.sluice.tmp"} {
		_, err := f.WriteFile(d.ctx, "out/"+name, []byte(name), client.FileParents())
		d.must(err)
	}
	dir := t.TempDir()
	_, _, err := f.CopyOut(d.ctx, "out", dir)
	d.must(err)
	for _, name := range []string{long, "a", "a.sluice.tmp"} {
		got, err := os.ReadFile(filepath.Join(dir, "out", name))
		d.must(err)
		d.equal("content", string(got), name)
	}
	d.must(os.WriteFile(filepath.Join(dir, "target"), nil, 0o600))
	d.must(os.Symlink("target", filepath.Join(dir, "link")))
	_, _, err = f.CopyOut(d.ctx, "out/a", filepath.Join(dir, "link"))
	d.must(err)
	got, err := os.ReadFile(filepath.Join(dir, "target"))
	d.must(err)
	d.equal("content where the link leads", string(got), "a")
}

// A reader that fails in the middle of an upload, and a caller that leaves a download, leave nothing half done.
func TestBrokenTransfersLeaveNothing(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	broken := errors.New("broken")
	_, err := f.Write(d.ctx, "file", io.MultiReader(bytes.NewReader(make([]byte, 3*schemas.MaxFilePiece)), errorReader{broken}))
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
	_, err = f.WriteFile(d.ctx, "file", make([]byte, 20*schemas.MaxFilePiece))
	d.must(err)
	r, err := f.Download(d.ctx, "")
	d.must(err)
	_, err = io.ReadFull(r, make([]byte, schemas.MaxFilePiece))
	d.must(errors.Join(err, r.Close()))
	noTemps(d, "t1")
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// A pause of the content, in either direction, ends no transfer. It takes longer than the worker's patience with a silent caller.
func TestPausesOfContent(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		t.Skip("takes a minute: SLUICE_LONG=1 runs it")
	}
	d := newCaller(t, "w1")
	f := d.Files("t1")
	pause := func() { <-time.After(35 * time.Second) }
	_, err := f.Write(d.ctx, "file", io.MultiReader(bytes.NewReader(make([]byte, 3*schemas.MaxFilePiece)), &paused{Reader: strings.NewReader("end"), pause: pause}))
	d.must(err)
	_, err = f.WriteFile(d.ctx, "large", make([]byte, 20*schemas.MaxFilePiece))
	d.must(err)
	r, err := f.Open(d.ctx, "large", client.FilePart{})
	d.must(err)
	defer r.Close()
	_, err = io.ReadFull(r, make([]byte, schemas.MaxFilePiece))
	d.must(err)
	pause()
	n, err := io.Copy(io.Discard, r)
	d.must(err)
	d.equal("the rest", n, int64(19*schemas.MaxFilePiece))
}

// paused pauses before its first byte.
type paused struct {
	io.Reader
	pause func()
}

func (p *paused) Read(b []byte) (int, error) {
	if p.pause != nil {
		p.pause()
		p.pause = nil
	}
	return p.Reader.Read(b)
}
