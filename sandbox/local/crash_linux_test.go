package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

const patience = time.Minute

func makeBox(t *testing.T, p *Provider) sandbox.Sandbox {
	t.Helper()
	s, err := p.Create(t.Context(), sandbox.Spec{ID: "box", Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// vanished waits until none of these is there; a zombie is none.
func vanished(t *testing.T, pids ...int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(patience); ; <-tick.C {
		left := ""
		for _, pid := range pids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(b), ") Z ") {
				left += " " + string(b)
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("still there: %s", left)
		}
	}
}

// TestSupervisorKilled: somebody killed the supervisor. Its processes are lost, and die with it.
func TestSupervisorKilled(t *testing.T) {
	s := makeBox(t, newProvider(t))
	p, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "echo printed; echo $$; exec sleep 300"}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Read(t.Context())
	if err != nil || !strings.HasPrefix(string(out.Data), "printed") {
		t.Fatal(out, err)
	}
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "killer", Path: "sh", Args: []string{"-c", "kill -9 $PPID"}}); err != nil && !errors.Is(err, schemas.ErrUnavailable) {
		t.Fatal(err)
	}
	<-s.Done()
	for {
		if _, err := p.Read(t.Context()); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Reason != schemas.ReasonLost || exit.Code != -1 {
		t.Errorf("%+v, %v", exit, err)
	}
	vanished(t, p.PID())
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "late", Path: "true"}); !errors.Is(err, schemas.ErrUnavailable) {
		t.Error(err)
	}
	if err := s.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestWorkerKilled: the worker dies of SIGKILL. What it ran waits for the next one, and ends with that.
func TestWorkerKilled(t *testing.T) {
	dir := runDir(t)
	pids := killedWorker(t, dir, 0)
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.Attach(t.Context())
	if err != nil || len(found) != 1 || found[0].ID() != "box" {
		t.Fatal(found, err)
	}
	held, err := found[0].Held(t.Context())
	if err != nil || len(held) != 1 || held[0].PID != pids[1] || held[0].Ended {
		t.Errorf("%+v, %v", held, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	vanished(t, pids...)
	nothingLeft(t, dir)
}

// TestLinger: nobody comes back.
func TestLinger(t *testing.T) {
	dir := runDir(t)
	vanished(t, killedWorker(t, dir, time.Millisecond)...)
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := p.Attach(t.Context()); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
	nothingLeft(t, dir)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestSupervisorKilledToo: the worker and then the supervisor were killed, and somebody else has its number by now.
func TestSupervisorKilledToo(t *testing.T) {
	dir := runDir(t)
	pids := killedWorker(t, dir, 0)
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	vanished(t, pids[:2]...)
	for _, pid := range pids[2:] { // adopted by nobody here
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "run", "kept", "*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatal(kept, err)
	}
	body, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	mine := strings.Replace(string(body), fmt.Sprintf(`"pid":%d,`, pids[0]), fmt.Sprintf(`"pid":%d,`, os.Getpid()), 1)
	if mine == string(body) {
		t.Fatalf("%s", body)
	}
	for name, text := range map[string]string{filepath.Base(kept[0]): mine, "0123456789abcdef0123.json": "{", "junk": "x"} {
		if err := os.WriteFile(filepath.Join(dir, "run", "kept", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if found, err := p.Attach(t.Context()); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
	if err := errors.Join(p.Close(), os.Remove(filepath.Join(dir, "run", "kept", "junk"))); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir)
}

// killedWorker starts a worker with a tree in a sandbox, and kills it. It gives the pids of the supervisor, the process and two more.
func killedWorker(t *testing.T, dir string, reattachWindow time.Duration) []int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "worker", dir, reattachWindow.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pids := make([]int, 4)
	if err == nil {
		_, err = fmt.Sscan(line, &pids[0], &pids[1], &pids[2], &pids[3])
	}
	if err := errors.Join(err, cmd.Process.Kill()); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	_ = cmd.Wait()
	return pids
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	for _, pattern := range []string{"*.sock", "kept/*"} {
		if left, err := filepath.Glob(filepath.Join(dir, "run", pattern)); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

// TestOutsiderHoldsThePipe: somebody outside the tree has the other end of a pipe open. The process still ends, with all
// that was printed.
func TestOutsiderHoldsThePipe(t *testing.T) {
	s := makeBox(t, newProvider(t))
	p, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "echo one; read x; echo two"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.Read(t.Context()); err != nil || string(out.Data) != "one\n" {
		t.Fatal(out, err)
	}
	holder, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.PID()), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := p.WriteStdin(t.Context(), []byte("\n")); err != nil {
		t.Fatal(err)
	}
	if out, err := p.Read(t.Context()); err != nil || string(out.Data) != "two\n" {
		t.Fatal(out, err)
	}
	if out, err := p.Read(t.Context()); err != io.EOF {
		t.Fatal(out, err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 || exit.Stdout != 8 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// TestBusy: a program that somebody has open for writing cannot be run, and says so.
func TestBusy(t *testing.T) {
	s := makeBox(t, newProvider(t))
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "program"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("#!/bin/sh\n"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Start(t.Context(), sandbox.Command{ID: "p", Path: f.Name()})
	if failure, ok := errors.AsType[*sandbox.StartError](err); !ok || failure.Code != schemas.ExitNotExecutable {
		t.Error(err)
	}
}

// TestStaleSocket: a worker and its supervisor were both killed; the socket's name is still there.
func TestStaleSocket(t *testing.T) {
	p := newProvider(t)
	command, err := p.supervisor()
	if err != nil {
		t.Fatal(err)
	}
	r, err := start(t.Context(), p.socket(socketName("box")), command)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := link.Listen(t.Context(), r.socket); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("a socket somebody listens on: %v", err)
	}
	r.force()
	<-r.gone
	if err := r.conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.socket); err != nil {
		t.Fatal(err)
	}
	s := makeBox(t, p)
	if err := s.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestPrivate: nobody else can reach the socket, and the supervisor is in no session of ours.
func TestPrivate(t *testing.T) {
	p := newProvider(t)
	s := makeBox(t, p)
	sockets, err := filepath.Glob(filepath.Join(p.dir, "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	for path, want := range map[string]os.FileMode{sockets[0]: 0o600 | os.ModeSocket, p.dir: 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	q, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "read -r l </proc/$PPID/stat; set -- ${l##*) }; [ $4 = $PPID ]"}})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := q.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Errorf("%+v, %v", exit, err)
	}
	// A second connection is not for anybody while the first one is in charge.
	conn, err := net.Dial("unix", sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func TestConfig(t *testing.T) {
	warn := func(string) {}
	for what, c := range map[string]Config{
		"no folder": {Warn: warn}, "relative": {RunDir: "run", Warn: warn}, "too long": {RunDir: "/" + strings.Repeat("x", 100), Warn: warn},
		"nobody to warn": {RunDir: runDir(t)},
	} {
		if _, err := New(c); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	file := filepath.Join(runDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{RunDir: file, Warn: warn}); !errors.Is(err, schemas.ErrUnavailable) {
		t.Error(err)
	}
	var told []string
	p, err := New(Config{RunDir: runDir(t), Supervisor: []string{"/no/such/supervisor"}, Warn: func(s string) { told = append(told, s) }})
	if err != nil || len(told) != 1 || told[0] != Warning {
		t.Fatal(told, err)
	}
	for _, command := range [][]string{{"/no/such/supervisor"}, {"/bin/true"}} {
		p.command = command
		if _, err := p.Create(t.Context(), sandbox.Spec{ID: "x", Workspace: filepath.Join(p.dir, "ws")}); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("%v: %v", command, err)
		}
		if left, err := filepath.Glob(filepath.Join(p.dir, "kept", "*")); err != nil || len(left) != 0 {
			t.Errorf("%v: left behind: %v, %v", command, left, err)
		}
		if left, err := filepath.Glob(filepath.Join(p.dir, "*")); err != nil || len(left) != 1 {
			t.Errorf("%v: left behind: %v, %v", command, left, err)
		}
	}
}
