package link_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// alone is a supervisor without a provider.
type alone struct {
	socket string
	gone   chan struct{}
}

func launch(t *testing.T) *alone {
	t.Helper()
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	a := &alone{socket: filepath.Join(dir, "s"), gone: make(chan struct{})}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "supervisor")
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{f}
	if err := errors.Join(cmd.Start(), f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(a.gone)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the supervisor ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		<-a.gone
		if _, err := os.Stat(a.socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the supervisor left its socket: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return a
}

func (a *alone) open(t *testing.T, reattachWindow time.Duration) *link.Link {
	t.Helper()
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.Open(t.Context(), conn, reattachWindow)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func spawn(t *testing.T, l *link.Link, id, script string) *link.Process {
	t.Helper()
	p, err := l.Start(t.Context(), &wire.Spawn{
		ID: id, Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin", "SLUICE_PROCESS=" + id}, Dir: "/", Stdin: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// some reads until n bytes of standard output have come, or the end.
func some(t *testing.T, p *link.Process, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	for b.Len() < n {
		out, err := p.Read(t.Context())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(out.Data)
	}
	return b.Bytes()
}

// TestResume is a worker's restart: the connection ends in mid-run, and another goes on from where the first had stored.
func TestResume(t *testing.T) {
	a := launch(t)
	const size = 20 << 20
	first := a.open(t, time.Hour)
	asks := spawn(t, first, "asks", "echo one; read x; echo two $x; exit 5")
	if got := string(some(t, asks, 4)); got != "one\n" {
		t.Fatal(got)
	}
	prints := spawn(t, first, "prints", "head -c 20971520 /dev/zero | tr '\\0' x; exit 3")
	stored := int64(0)
	for stored < 10<<20 {
		n := int64(len(some(t, prints, 1)))
		stored += n
		if err := prints.Ack(schemas.Stdout, stored); err != nil {
			t.Fatal(err)
		}
	}
	ended := spawn(t, first, "ended", "i=0; while [ $i -lt 1000 ]; do echo $i; i=$((i+1)); done; exit 4")
	all := some(t, ended, 1<<20)
	if exit, err := ended.Wait(t.Context()); err != nil || exit.Code != 4 {
		t.Fatal(exit, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if exit, err := asks.Wait(t.Context()); err != nil || exit.Reason != schemas.ReasonLost {
		t.Fatal(exit, err)
	}

	second := a.open(t, time.Hour)
	defer func() {
		if err := errors.Join(second.Terminate(0), closed(second)); err != nil {
			t.Error(err)
		}
	}()
	again := make(map[string]*link.Process)
	list, err := second.List(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatal(list, err)
	}
	from := map[string]int64{"asks": 4, "prints": stored, "ended": 100}
	for _, held := range list {
		if held.Ended != (held.ID == "ended") && held.ID != "prints" {
			t.Errorf("%+v", held)
		}
		if again[held.ID], err = second.Resume(held, from[held.ID], 0); err != nil {
			t.Fatal(err)
		}
		if _, err := second.Resume(held, 0, 0); !errors.Is(err, schemas.ErrConflict) && held.ID == "asks" {
			t.Errorf("resumed twice: %v", err)
		}
	}
	if again["asks"].PID() != asks.PID() {
		t.Errorf("pid %d, was %d", again["asks"].PID(), asks.PID())
	}
	if err := again["asks"].WriteStdin(t.Context(), []byte("more\n")); err != nil {
		t.Fatal(err)
	}
	if got := string(some(t, again["asks"], 9)); got != "two more\n" {
		t.Errorf("%q", got)
	}
	if got := some(t, again["ended"], 1<<20); !bytes.Equal(got, all[100:]) {
		t.Errorf("%d bytes again, of %d after the first 100", len(got), len(all))
	}
	for total := stored; ; {
		out, err := again["prints"].Read(t.Context())
		if err == io.EOF {
			if total != size {
				t.Errorf("%d bytes in all", total)
			}
			break
		}
		if err != nil || out.Offset != total || bytes.Trim(out.Data, "x") != nil && len(bytes.Trim(out.Data, "x")) > 0 {
			t.Fatal(out.Offset, total, err)
		}
		total += int64(len(out.Data))
		if err := again["prints"].Ack(out.Stream, total); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{"asks": 5, "prints": 3, "ended": 4} {
		exit, err := again[id].Wait(t.Context())
		if err != nil || exit.Code != want || exit.Reason != schemas.ReasonExited {
			t.Errorf("%s: %+v, %v", id, exit, err)
		}
		if err := again[id].Release(); err != nil {
			t.Error(err)
		}
	}
	if list, err := second.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("after release: %v, %v", list, err)
	}
}

func closed(l *link.Link) error {
	<-l.Done()
	return l.Close()
}

// TestTakeOver: a worker that hangs, with its connection open, does not keep the next one out.
func TestTakeOver(t *testing.T) {
	a := launch(t)
	first := a.open(t, time.Hour)
	second := a.open(t, time.Hour)
	<-first.Done()
	if err := errors.Join(first.Close(), second.Terminate(0), closed(second)); err != nil {
		t.Error(err)
	}
}

func TestLinger(t *testing.T) {
	for _, reattachWindow := range []time.Duration{0, time.Millisecond} {
		a := launch(t)
		l := a.open(t, reattachWindow)
		p := spawn(t, l, "p", "trap '' TERM; (setsid sleep 300 &); sleep 300")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-a.gone
		if exit, err := p.Wait(t.Context()); err != nil || exit.Reason != schemas.ReasonLost || exit.Code != -1 {
			t.Error(exit, err)
		}
		if err := p.Signal(15); !errors.Is(err, schemas.ErrNotFound) {
			t.Error(err)
		}
	}
}

// TestOtherEnd talks to something that is no supervisor, or not one of this version.
func TestOtherEnd(t *testing.T) {
	hello := wire.Hello{Version: wire.Version}
	good := hello.Append(nil)
	hello.Version++
	exit := wire.Exit{Handle: 99}
	output := make([]byte, wire.OutputFrame+1)
	(&wire.Output{Handle: 1, Stream: wire.Stdout, Offset: 7}).Put(output, 1)
	for what, in := range map[string][]byte{
		"nothing": nil, "noise": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "another version": hello.Append(nil), "another frame": exit.Append(nil),
	} {
		ours, theirs := net.Pipe()
		go answer(theirs, in)
		if l, err := link.Open(t.Context(), ours, 0); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
	}
	for what, in := range map[string][]byte{
		"noise": []byte("xxxxxxxxxxxxxxxx"), "second hello": good, "a host's frame": wire.AppendList(nil), "a list nobody asked for": (&wire.Listed{}).Append(nil),
		"exit of none": exit.Append(nil), "a gap in the output": append((&wire.Spawned{Handle: 1}).Append(nil), output...),
		"started twice": bytes.Repeat((&wire.Spawned{Handle: 1}).Append(nil), 2),
	} {
		ours, theirs := net.Pipe()
		go answer(theirs, append(bytes.Clone(good), in...))
		l, err := link.Open(t.Context(), ours, 0)
		if err != nil {
			t.Fatal(what, err)
		}
		if p, err := l.Start(t.Context(), &wire.Spawn{ID: "x"}); err == nil {
			if exit, err := p.Wait(t.Context()); err != nil || exit.Reason != schemas.ReasonLost {
				t.Errorf("%s: %+v, %v", what, exit, err)
			}
		} else if !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := l.List(t.Context()); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("%s: list after the end: %v", what, err)
		}
	}
}

// answer reads all there is, and writes b after the first read.
func answer(conn net.Conn, b []byte) {
	defer conn.Close()
	buf := make([]byte, 4096)
	if _, err := conn.Read(buf); err != nil {
		return
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	}()
	_, _ = conn.Write(b)
	_ = conn.Close()
	<-drained
}

func TestOpenContext(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := link.Open(ctx, ours, 0); !errors.Is(err, schemas.ErrUnavailable) {
		t.Error(err)
	}
}

// FuzzDir: whatever the words, what comes out lies in the workspace.
func FuzzDir(f *testing.F) {
	for _, dir := range []string{"", ".", "a", "../x", "/", "/etc", "a/../..", "//", "a/\x00"} {
		f.Add(dir)
	}
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, dir string) {
		got, err := link.Dir(root, "/workspace", dir)
		if err != nil {
			if _, ok := errors.AsType[*sandbox.StartError](err); !ok && !errors.Is(err, schemas.ErrInvalidArgument) {
				t.Errorf("%q: %v", dir, err)
			}
			return
		}
		if rel, err := filepath.Rel("/workspace", got); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("%q leads to %q", dir, got)
		}
	})
}
