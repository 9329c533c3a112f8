package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// A worker that is killed with -9 in the middle of transfers: their callers get a typed error, and once the worker is back, no process and no
// temporary file of them is left. The file has its old content.
func TestTransfersOfAKilledWorker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, "w1")
	files := f.client.Files("t1")
	_, err := files.WriteFile(f.ctx, "file", make([]byte, 64*schemas.MaxFilePiece))
	f.must(err)
	reading, err := files.Open(f.ctx, "file", client.FilePart{})
	f.must(err)
	defer reading.Close()
	_, err = io.ReadFull(reading, make([]byte, schemas.MaxFilePiece))
	f.must(err)
	started, content := make(chan struct{}), make(chan struct{})
	written := make(chan error, 2)
	begin := func(write func(io.Reader) error) {
		r, w := io.Pipe()
		go func() {
			_, err := w.Write(make([]byte, 4*schemas.MaxFilePiece)) // more than a window of one piece: the first ones were answered
			started <- struct{}{}
			<-content
			_ = w.CloseWithError(errors.Join(err, io.EOF))
		}()
		go func() { written <- write(r) }()
	}
	begin(func(r io.Reader) error { _, err := files.Write(f.ctx, "file", r); return err })
	begin(func(r io.Reader) error { _, err := files.Write(f.ctx, "in/new", r, client.FileParents()); return err })
	<-started
	<-started
	for len(withArgument(t, "sluice-files")) < 3 {
		<-time.After(20 * time.Millisecond)
	}
	f.workers["w1"].kill()
	close(content)
	for range 2 {
		testkit.WantCode(t, <-written, schemas.CodeUnavailable)
	}
	_, err = io.Copy(io.Discard, reading)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	f.start("w1")
	waitGone(t, withArgument(t, "sluice-files"))
	e, err := files.Stat(f.ctx, "file")
	f.must(err)
	testkit.Equal(t, "size", e.Size, int64(64*schemas.MaxFilePiece))
	found, _, err := files.Search(f.ctx, client.FileQuery{})
	f.must(err)
	var names []string
	for _, e := range found {
		names = append(names, e.Path)
	}
	slices.Sort(names)
	testkit.Equal(t, "names in the workspace", strings.Join(names, " "), "file in")
}

// A sandbox that lies about the name of what is copied out changes nothing but the file that the user has named.
func TestCopyOutFromALiar(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	nc := c.up().stranger(t)
	_, err := nc.Subscribe("sluice.v1.local.default.ctl.liar.*.file", func(m *nats.Msg) {
		answer := &nats.Msg{Data: []byte(`{"entries":[{"path":"../.bashrc","type":"file","mode":"644"}]}`), Header: nats.Header{}}
		switch body := string(m.Data); {
		case m.Header.Get("Sluice-Offset") != "":
			answer = &nats.Msg{Data: []byte("evil"), Header: nats.Header{"Sluice-Offset": {m.Header.Get("Sluice-Offset")}, "Sluice-End": {"true"}}}
		case strings.Contains(body, `"list"`):
			answer.Data = []byte(`{"entries":[{"path":"a","type":"file"}],"truncated":true}`)
		case !strings.Contains(body, `"stat"`):
			answer.Data = []byte(`{}`)
		}
		_ = m.RespondMsg(answer)
	})
	testkit.Must(t, err)
	testkit.Must(t, nc.Flush())
	dir := filepath.Join(t.TempDir(), "home")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	c.run("cp", "liar:report.csv", dir).check(t).exits(0)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", "*"))
	testkit.Must(t, err)
	testkit.Equal(t, "files", left, []string{filepath.Join(dir, "report.csv")})
	c.run("file", "ls", "liar:").wantError(t, schemas.CodeInternal, "begins again")
}

// A named pipe, a device or a folder is not read as a file: that might never end.
func TestPutOfWhatIsNoFile(t *testing.T) {
	c := newUp(t)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	testkit.Must(t, unix.Mkfifo(pipe, 0o600))
	for _, local := range []string{pipe, dir, os.DevNull} {
		c.run("file", "put", local, "t1:x").wantError(t, schemas.CodeInvalidArgument, "is not a file")
	}
	c.run("cp", pipe, "t1:x").wantError(t, schemas.CodeInvalidArgument, "neither a file nor a folder")
	c.run("file", "put", filepath.Join(dir, "none"), "t1:x").wantError(t, schemas.CodeNotFound)
	c.run("file", "stat", "t1:x").wantError(t, schemas.CodeNotFound)
}
