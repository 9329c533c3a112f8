package local

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/schemas"
)

func newSandbox(t *testing.T, p *Provider) sandbox.Sandbox {
	t.Helper()
	s, err := p.Create(t.Context(), sandbox.Spec{ID: "s1", Workspace: t.TempDir()})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	return s
}

func wantOutput(t *testing.T, p sandbox.Process, want string) {
	t.Helper()
	out, err := p.Read(t.Context())
	testkit.Must(t, err)
	testkit.Equal(t, "output", string(out.Data), want)
}

// waitGone waits until these processes have ended, or are zombies.
func waitGone(t *testing.T, pids ...int) {
	t.Helper()
	ctx := testkit.Context(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		running := ""
		for _, pid := range pids {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err == nil && !strings.Contains(string(b), ") Z ") {
				running += " " + string(b)
			}
		}
		if running == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("processes still run:%s", running)
		}
	}
}

func TestKilledSupervisorLosesItsProcesses(t *testing.T) {
	s := newSandbox(t, newProvider(t, testkit.ShortDir(t)))
	p := sandboxtest.StartShell(t, s, "p", "echo printed; exec sleep 300")
	wantOutput(t, p, "printed\n")
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "killer", Path: "sh", Args: []string{"-c", "kill -9 $PPID"}}); err != nil && !errors.Is(err, schemas.ErrUnavailable) {
		t.Fatal(err)
	}
	<-s.Done()
	sandboxtest.MustFinish(t, p)
	wantExit(t, p, schemas.ReasonLost, -1)
	waitGone(t, p.PID())
	_, err := s.Start(t.Context(), sandbox.Command{ID: "late", Path: "true"})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	testkit.Must(t, s.Terminate(t.Context(), 0))
}

func wantExit(t *testing.T, p sandbox.Process, reason schemas.Reason, code int) sandbox.Exit {
	t.Helper()
	exit, err := p.Wait(t.Context())
	testkit.Must(t, err)
	if exit.Reason != reason || exit.Code != code {
		t.Errorf("exit: reason %s, code %d, want %s, %d (%+v)", exit.Reason, exit.Code, reason, code, exit)
	}
	return exit
}

// attach opens the run folder of a killed worker, and returns the sandboxes of Attach.
func attach(t *testing.T, dir string) (*Provider, []sandbox.Attached) {
	t.Helper()
	p := newProvider(t, dir)
	found, err := p.Attach(t.Context())
	testkit.Must(t, err)
	return p, found
}

func TestSandboxOutlivesKilledWorker(t *testing.T) {
	dir := testkit.ShortDir(t)
	pids := killedWorker(t, dir, 0)
	p := newProvider(t, dir)
	s, process := sandboxtest.AttachOne(t, p)
	testkit.Equal(t, "id of the sandbox", s.ID(), "s1")
	testkit.Equal(t, "pid of the process", process.PID, pids[1])
	testkit.Must(t, p.Close())
	waitGone(t, pids...)
	wantNoFiles(t, dir)
}

func TestSandboxEndsAfterReattachWindow(t *testing.T) {
	dir := testkit.ShortDir(t)
	waitGone(t, killedWorker(t, dir, time.Millisecond)...)
	p, found := attach(t, dir)
	testkit.Equal(t, "number of attached sandboxes", len(found), 0)
	wantNoFiles(t, dir)
	testkit.Must(t, p.Close())
}

// The worker and the supervisor were killed, and another process has the supervisor's pid. Files that are not records are there too.
func TestAttachIgnoresReusedPID(t *testing.T) {
	dir := testkit.ShortDir(t)
	pids := killedWorker(t, dir, 0)
	testkit.Must(t, syscall.Kill(pids[0], syscall.SIGKILL))
	waitGone(t, pids[:2]...)
	for _, pid := range pids[2:] { // without a subreaper they outlive the supervisor
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	folder := filepath.Join(dir, "run", "kept")
	records, err := filepath.Glob(filepath.Join(folder, "*.json"))
	testkit.Must(t, err)
	if len(records) != 1 {
		t.Fatalf("record files %v, want one", records)
	}
	body, err := os.ReadFile(records[0])
	testkit.Must(t, err)
	reused := strings.Replace(string(body), fmt.Sprintf(`"pid":%d,`, pids[0]), fmt.Sprintf(`"pid":%d,`, os.Getpid()), 1)
	if reused == string(body) {
		t.Fatalf("the record does not have pid %d: %s", pids[0], body)
	}
	for name, text := range map[string]string{filepath.Base(records[0]): reused, "0123456789abcdef0123.json": "{", "junk": "x"} {
		testkit.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	p, found := attach(t, dir)
	testkit.Equal(t, "number of attached sandboxes", len(found), 0)
	testkit.Must(t, errors.Join(p.Close(), os.Remove(filepath.Join(folder, "junk"))))
	wantNoFiles(t, dir)
}

// killedWorker starts a worker with a process tree in a sandbox, and kills it. It returns the pids of the supervisor, the process and
// its two descendants.
func killedWorker(t *testing.T, dir string, reattachWindow time.Duration) []int {
	t.Helper()
	pids := make([]int, 4)
	_, err := fmt.Sscan(sandboxtest.KilledWorker(t, "worker", dir, reattachWindow.String()), &pids[0], &pids[1], &pids[2], &pids[3])
	testkit.Must(t, err)
	return pids
}

// wantNoFiles checks that no socket and no record is left.
func wantNoFiles(t *testing.T, dir string) {
	t.Helper()
	sandboxtest.WantNoFiles(t, filepath.Join(dir, "run/*.sock"), filepath.Join(dir, "run/kept/*"))
}

// A process outside the tree has the other end of a pipe open. The process still ends, with all of its output.
func TestProcessEndsWhileOutsiderHoldsItsPipe(t *testing.T) {
	s := newSandbox(t, newProvider(t, testkit.ShortDir(t)))
	p := sandboxtest.Start(t, s, sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "echo one; read x; echo two"}, Stdin: true})
	wantOutput(t, p, "one\n")
	outsider, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", p.PID()), os.O_WRONLY, 0)
	testkit.Must(t, err)
	defer outsider.Close()
	testkit.Must(t, p.WriteStdin(t.Context(), []byte("\n")))
	wantOutput(t, p, "two\n")
	if out, err := p.Read(t.Context()); err != io.EOF {
		t.Fatalf("read %+v, error %v, want io.EOF", out, err)
	}
	exit := wantExit(t, p, schemas.ReasonExited, 0)
	testkit.Equal(t, "bytes of stdout", exit.Stdout, int64(8))
}

func TestStartRefusesProgramOpenForWriting(t *testing.T) {
	s := newSandbox(t, newProvider(t, testkit.ShortDir(t)))
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "program"), os.O_CREATE|os.O_WRONLY, 0o755)
	testkit.Must(t, err)
	defer f.Close()
	_, err = f.WriteString("#!/bin/sh\n")
	testkit.Must(t, err)
	_, err = s.Start(t.Context(), sandbox.Command{ID: "p", Path: f.Name()})
	if failure, ok := errors.AsType[*sandbox.StartError](err); !ok || failure.Code != schemas.ExitNotExecutable {
		t.Errorf("error %v, want a StartError with code %d", err, schemas.ExitNotExecutable)
	}
}

// A worker and its supervisor were both killed, and the socket's file is still there.
func TestCreateReplacesStaleSocket(t *testing.T) {
	p := newProvider(t, testkit.ShortDir(t))
	command, err := p.supervisor()
	testkit.Must(t, err)
	name := registry.NameOf("s1")
	v, err := p.start(t.Context(), name, command)
	testkit.Must(t, err)
	_, err = link.Listen(t.Context(), p.socket(name))
	testkit.WantCode(t, err, schemas.CodeConflict) // a supervisor listens on it
	v.kill()
	<-v.gone
	testkit.Must(t, v.conn.Close())
	_, err = os.Stat(p.socket(name))
	testkit.Must(t, err)
	s := newSandbox(t, p)
	testkit.Must(t, s.Terminate(t.Context(), 0))
}

func TestSupervisorIsPrivate(t *testing.T) {
	p := newProvider(t, testkit.ShortDir(t))
	s := newSandbox(t, p)
	sockets, err := filepath.Glob(filepath.Join(p.dir, "*.sock"))
	testkit.Must(t, err)
	if len(sockets) != 1 {
		t.Fatalf("sockets %v, want one", sockets)
	}
	for path, want := range map[string]os.FileMode{sockets[0]: 0o600 | os.ModeSocket, p.dir: 0o700 | os.ModeDir} {
		info, err := os.Stat(path)
		testkit.Must(t, err)
		testkit.Equal(t, "mode of "+path, info.Mode(), want)
	}
	// The fourth field after the name is the session id.
	q := sandboxtest.Start(t, s, sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "read -r l </proc/$PPID/stat; set -- ${l##*) }; [ $4 = $PPID ]"}})
	wantExit(t, q, schemas.ReasonExited, 0)
	// A second connection is not served while the first one is open.
	conn, err := net.Dial("unix", sockets[0])
	testkit.Must(t, err)
	testkit.Must(t, conn.Close())
}
