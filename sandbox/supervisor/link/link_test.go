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
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, testkit.Programs{"supervisor": supervisor.Main}) }

// bareSupervisor is a supervisor without a provider.
type bareSupervisor struct {
	socket string
	pid    int
	exited chan struct{}
}

func launch(t *testing.T) *bareSupervisor {
	t.Helper()
	s := &bareSupervisor{socket: filepath.Join(testkit.ShortDir(t), "s"), exited: make(chan struct{})}
	f, err := link.Listen(t.Context(), s.socket)
	testkit.Must(t, err)
	cmd := exec.Command(os.Args[0], "supervisor")
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{f}
	testkit.Must(t, errors.Join(cmd.Start(), f.Close()))
	s.pid = cmd.Process.Pid
	go func() {
		defer close(s.exited)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the supervisor's exit: %v, want code 0", err)
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill() // a test that ends early leaves it running
		}
		<-s.exited
		if _, err := os.Stat(s.socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("stat the supervisor's socket after its exit: error = %v, want %v", err, os.ErrNotExist)
		}
	})
	return s
}

func (s *bareSupervisor) open(t *testing.T, reattachWindow time.Duration) *link.Link {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	testkit.Must(t, err)
	l, err := link.Open(t.Context(), conn, reattachWindow)
	testkit.Must(t, err)
	return l
}

func spawn(t *testing.T, l *link.Link, id, script string) *link.Process {
	t.Helper()
	p, err := l.Start(t.Context(), &wire.Spawn{
		ID: id, Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin", "SLUICE_PROCESS=" + id}, Dir: "/", Stdin: true,
	})
	testkit.Must(t, err)
	return p
}

// read reads at least n bytes of standard output, or to its end.
func read(t *testing.T, p *link.Process, n int) string {
	t.Helper()
	var b bytes.Buffer
	for b.Len() < n {
		out, err := p.Read(t.Context())
		if err == io.EOF {
			break
		}
		testkit.Must(t, err)
		b.Write(out.Data)
	}
	return b.String()
}

func wantExit(t *testing.T, p *link.Process, reason schemas.Reason, code int) {
	t.Helper()
	exit, err := p.Wait(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, p.ID()+": reason", exit.Reason, reason)
	testkit.Equal(t, p.ID()+": code", exit.Code, code)
}

func terminate(t *testing.T, l *link.Link) {
	t.Helper()
	err := l.Terminate(0)
	<-l.Done()
	testkit.Must(t, errors.Join(err, l.Close()))
}

// TestResume: a worker restarts. Its connection ends in mid-run, and the next one resumes from the stored offsets.
func TestResume(t *testing.T) {
	s := launch(t)
	const size = 20 << 20
	first := s.open(t, time.Hour)
	asks := spawn(t, first, "asks", "echo one; read x; echo two $x; exit 5")
	testkit.Equal(t, "asks: output", read(t, asks, 4), "one\n")
	prints := spawn(t, first, "prints", "head -c 20971520 /dev/zero | tr '\\0' x; exit 3")
	stored := int64(0)
	for stored < 10<<20 {
		stored += int64(len(read(t, prints, 1)))
		testkit.Must(t, prints.Ack(schemas.Stdout, stored))
	}
	ended := spawn(t, first, "ended", "i=0; while [ $i -lt 1000 ]; do echo $i; i=$((i+1)); done; exit 4")
	all := read(t, ended, 1<<20)
	wantExit(t, ended, schemas.ReasonExited, 4)
	testkit.Must(t, first.Close())
	wantExit(t, asks, schemas.ReasonLost, -1)

	second := s.open(t, time.Hour)
	defer terminate(t, second)
	resumed := make(map[string]*link.Process)
	list, err := second.List(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "listed processes", len(list), 3)
	from := map[string]int64{"asks": 4, "prints": stored, "ended": 100}
	for _, state := range list {
		if state.ID != "prints" {
			testkit.Equal(t, state.ID+": ended", state.Ended, state.ID == "ended")
		}
		resumed[state.ID], err = second.Resume(state, from[state.ID], 0)
		testkit.Must(t, err)
		if state.ID == "asks" {
			_, err := second.Resume(state, 0, 0)
			testkit.WantCode(t, err, schemas.CodeConflict)
		}
	}
	testkit.Equal(t, "asks: pid", resumed["asks"].PID(), asks.PID())
	testkit.Must(t, resumed["asks"].WriteStdin(t.Context(), []byte("more\n")))
	testkit.Equal(t, "asks: resumed output", read(t, resumed["asks"], 9), "two more\n")
	testkit.Equal(t, "ended: resumed output", read(t, resumed["ended"], 1<<20), all[100:])
	total := stored
	for {
		out, err := resumed["prints"].Read(t.Context())
		if err == io.EOF {
			break
		}
		testkit.Must(t, err)
		if out.Offset != total {
			t.Fatalf("prints: offset = %d, want %d", out.Offset, total)
		}
		if rest := bytes.Trim(out.Data, "x"); len(rest) > 0 {
			t.Fatalf("prints: output has %d bytes other than x, want none", len(rest))
		}
		total += int64(len(out.Data))
		testkit.Must(t, resumed["prints"].Ack(out.Stream, total))
	}
	testkit.Equal(t, "prints: bytes", total, int64(size))
	for id, code := range map[string]int{"asks": 5, "prints": 3, "ended": 4} {
		wantExit(t, resumed[id], schemas.ReasonExited, code)
		testkit.Must(t, resumed[id].Release())
	}
	list, err = second.List(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "listed processes after release", len(list), 0)
}

// TestOpenReplacesConnection: a worker that hangs with its connection open does not block the next one.
func TestOpenReplacesConnection(t *testing.T) {
	s := launch(t)
	first := s.open(t, time.Hour)
	second := s.open(t, time.Hour)
	<-first.Done()
	testkit.Must(t, first.Close())
	terminate(t, second)
}

func TestReattachWindowEnds(t *testing.T) {
	for _, reattachWindow := range []time.Duration{0, time.Millisecond} {
		s := launch(t)
		l := s.open(t, reattachWindow)
		p := spawn(t, l, "p", "trap '' TERM; (setsid sleep 300 &); sleep 300")
		testkit.Must(t, l.Close())
		<-s.exited
		wantExit(t, p, schemas.ReasonLost, -1)
		testkit.WantCode(t, p.Signal(15), schemas.CodeNotFound)
	}
}

func frames(messages ...wire.Message) []byte {
	var b []byte
	for _, m := range messages {
		b = wire.Append(b, m)
	}
	return b
}

// resize changes the length of a frame's payload by n bytes: a field more, or fields less.
func resize(frame []byte, n int) []byte {
	frame = bytes.Clone(frame)
	frame[0] += byte(n)
	if n < 0 {
		return frame[:len(frame)+n]
	}
	return append(frame, make([]byte, n)...)
}

// TestOpenAcceptsOtherVersions: a supervisor of an older or a newer version is reattached, and its processes run.
func TestOpenAcceptsOtherVersions(t *testing.T) {
	spawned := frames(&wire.Spawned{Handle: 1, PID: 7, Started: 8})
	exit := frames(&wire.Exit{Handle: 1, Code: 3, Started: 8, Ended: 9})
	for what, c := range map[string]struct {
		version uint32
		resize  int // of Hello, Spawned and Exit
	}{
		"the oldest supported version":                  {wire.MinVersion, 0},
		"the oldest supported version, without a field": {wire.MinVersion, -8},
		"a newer version":                               {wire.Version + 1, 0},
		"a newer version, with a new field":             {wire.Version + 1, 8},
	} {
		hello := resize(frames(&wire.Hello{Version: c.version, PID: 5}), c.resize)
		l, err := link.Open(t.Context(), fake(hello, slices.Concat(resize(spawned, c.resize), resize(exit, c.resize))), time.Hour)
		if err != nil {
			t.Errorf("%s: open: %v", what, err)
			continue
		}
		testkit.Equal(t, what+": pid", l.PID(), 5)
		p, err := l.Start(t.Context(), &wire.Spawn{ID: "x"})
		testkit.Must(t, err)
		testkit.Equal(t, what+": process's pid", p.PID(), 7)
		wantExit(t, p, schemas.ReasonExited, 3)
		testkit.Must(t, l.Close())
	}
	_, err := link.Open(t.Context(), fake(frames(&wire.Hello{Version: wire.MinVersion - 1})), time.Hour)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	if !errors.Is(err, wire.ErrVersion) {
		t.Errorf("a version that is too old: error = %v, want %v", err, wire.ErrVersion)
	}
}

// TestSupervisorAcceptsOtherVersions: a supervisor serves a host of a newer version, and refuses one that is too old.
func TestSupervisorAcceptsOtherVersions(t *testing.T) {
	s := launch(t)
	hello := frames(&wire.Hello{Version: wire.MinVersion - 1, ReattachWindow: int64(time.Hour)})
	r := s.greet(t, hello)
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("a version that is too old: next frame: error = %v, want %v", err, io.EOF)
	}
	hello = resize(frames(&wire.Hello{Version: wire.Version + 1, ReattachWindow: int64(time.Hour)}), 8)
	r = s.greet(t, append(hello, resize(frames(&wire.List{}), 4)...))
	kind, _, err := r.Next()
	testkit.Must(t, err)
	testkit.Equal(t, "the answer to List", kind, wire.TypeListed)
	terminate(t, s.open(t, time.Hour))
}

// greet writes a host's first frames on a new connection and checks the supervisor's Hello.
func (s *bareSupervisor) greet(t *testing.T, first []byte) *wire.Reader {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, conn.Close()) })
	_, err = conn.Write(first)
	testkit.Must(t, err)
	r := wire.NewReader(conn)
	kind, n, err := r.Next()
	testkit.Must(t, err)
	testkit.Equal(t, "the supervisor's first frame", kind, wire.TypeHello)
	b := make([]byte, n)
	testkit.Must(t, r.Payload(b))
	var m wire.Hello
	testkit.Must(t, wire.Decode(b, &m))
	testkit.Equal(t, "the supervisor's version", m.Version, uint32(wire.Version))
	return r
}

// TestLinkRefusesProtocolViolations: Open fails on a peer that is no supervisor, and the link ends at the first invalid frame.
func TestLinkRefusesProtocolViolations(t *testing.T) {
	hello := frames(&wire.Hello{Version: wire.Version})
	exit := frames(&wire.Exit{Handle: 99})
	spawned := frames(&wire.Spawned{Handle: 1})
	output := make([]byte, wire.OutputFrame+1)
	(&wire.Output{Handle: 1, Stream: wire.Stdout, Offset: 7}).Put(output, 1)
	for what, in := range map[string][]byte{
		"nothing": nil, "noise": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "another frame": exit,
	} {
		_, err := link.Open(t.Context(), fake(in), 0)
		if got := schemas.CodeOf(err); got != schemas.CodeUnavailable {
			t.Errorf("open, %s: code = %q, want %q (error: %v)", what, got, schemas.CodeUnavailable, err)
		}
	}
	for what, in := range map[string][]byte{
		"noise": []byte("xxxxxxxxxxxxxxxx"), "second Hello": hello, "a host's frame": frames(&wire.List{}), "Listed without List": frames(&wire.Listed{}),
		"Exit of an unknown process": exit, "a gap in the output": slices.Concat(spawned, output), "two Spawned": slices.Concat(spawned, spawned),
	} {
		l, err := link.Open(t.Context(), fake(hello, in), 0)
		testkit.Must(t, err)
		if p, err := l.Start(t.Context(), &wire.Spawn{ID: "x"}); err == nil {
			exit, err := p.Wait(t.Context())
			testkit.Must(t, err)
			testkit.Equal(t, what+": reason", exit.Reason, schemas.ReasonLost)
		} else if got := schemas.CodeOf(err); got != schemas.CodeUnavailable {
			t.Errorf("%s: start: code = %q, want %q (error: %v)", what, got, schemas.CodeUnavailable, err)
		}
		testkit.Must(t, l.Close())
		_, err = l.List(t.Context())
		testkit.WantCode(t, err, schemas.CodeUnavailable)
	}
}

// fake is the host's end of a connection to a peer that writes one answer after each frame of the host, and then closes the connection.
func fake(answers ...[]byte) net.Conn {
	host, peer := net.Pipe()
	go func() {
		defer peer.Close()
		r := wire.NewReader(peer)
		for _, b := range answers {
			if _, _, err := r.Next(); err != nil {
				return
			}
			if _, err := peer.Write(b); err != nil {
				return
			}
		}
	}()
	return host
}

func TestOpenReturnsWhenContextEnds(t *testing.T) {
	host, peer := net.Pipe()
	defer peer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := link.Open(ctx, host, 0)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

// FuzzWorkingDir: every directory that WorkingDir returns is in the workspace.
func FuzzWorkingDir(f *testing.F) {
	for _, dir := range []string{"", ".", "a", "../x", "/", "/etc", "a/../..", "//", "a/\x00"} {
		f.Add(dir)
	}
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, dir string) {
		got, err := link.WorkingDir(root, "/workspace", dir)
		if err != nil {
			if _, ok := errors.AsType[*sandbox.StartError](err); !ok && !errors.Is(err, schemas.ErrInvalidArgument) {
				t.Errorf("%q: error = %v, want a StartError or %v", dir, err, schemas.ErrInvalidArgument)
			}
			return
		}
		if rel, err := filepath.Rel("/workspace", got); err != nil || !filepath.IsLocal(rel) {
			t.Errorf("%q = %q, want a path in /workspace", dir, got)
		}
	})
}

// A sandbox that is left at once keeps its record, also where its provider takes the connection's end for its own. Many of them are left at
// the same time: the goroutine that awaits the end of one has to be late.
func TestDetachKeepsTheRecord(t *testing.T) {
	var group sync.WaitGroup
	for range 2000 {
		group.Go(func() {
			l, err := link.Open(t.Context(), fake(frames(&wire.Hello{Version: wire.Version}), nil), 0)
			if err != nil {
				t.Error(err)
				return
			}
			exited := make(chan struct{})
			group.Go(func() {
				defer close(exited)
				<-l.Done()
			})
			s := link.NewSandbox(l, link.Config{
				Spec: sandbox.Spec{ID: "left", Workspace: t.TempDir()}, Exited: exited, Kill: func() { t.Error("it was killed") },
				Cleanup: func() { t.Error("its record is gone") }, SaveSpec: func(sandbox.Spec) error { return nil },
			})
			s.Detach()
		})
	}
	group.Wait()
}
