package jail

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/schemas"
)

func closing(t *testing.T, p *Provider) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func makeBox(t *testing.T, p *Provider, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := p.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// output runs a command to its end.
func output(t *testing.T, s sandbox.Sandbox, id, path string, args ...string) (string, sandbox.Exit) {
	t.Helper()
	p, err := s.Start(t.Context(), sandbox.Command{ID: id, Path: path, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for {
		out, err := p.Read(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text.Write(out.Data)
	}
	exit, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return text.String(), exit
}

// TestOwners: what a jail makes in its workspace is the worker's on the host, and what the worker puts there is the jail's inside.
func TestOwners(t *testing.T) {
	p := newProvider(t)
	defer closing(t, p)
	ws := t.TempDir()
	s := makeBox(t, p, sandbox.Spec{ID: "a", Workspace: ws})
	if err := os.WriteFile(filepath.Join(ws, "given"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, exit := output(t, s, "p", "sh", "-c", "id -un; echo y >>given && mkdir -p made/below && echo z >made/below/file && stat -c %U given made")
	if exit.Code != 0 || out != "sandboxuser\nsandboxuser\nsandboxuser\n" {
		t.Errorf("%+v %q", exit, out)
	}
	for _, name := range []string{"given", "made", "made/below/file"} {
		info, err := os.Stat(filepath.Join(ws, name))
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			t.Errorf("%s belongs to %+v", name, info.Sys())
		}
	}
}

// TestOwnersNotMapped: a file system that cannot map owners has its files given to the jail's user.
func TestOwnersNotMapped(t *testing.T) {
	ws := t.TempDir()
	if err := unix.Mount("none", ws, "ramfs", 0, ""); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	defer func() {
		if err := unix.Unmount(ws, 0); err != nil {
			t.Error(err)
		}
	}()
	p := newProvider(t)
	defer closing(t, p)
	if err := os.WriteFile(filepath.Join(ws, "given"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := makeBox(t, p, sandbox.Spec{ID: "a", Workspace: ws})
	if out, exit := output(t, s, "p", "sh", "-c", "echo y >>given && cat given && echo z >made"); exit.Code != 0 || out != "xy\n" {
		t.Errorf("%+v %q", exit, out)
	}
	if err := os.WriteFile(filepath.Join(ws, "later"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, exit := output(t, s, "q", "cat", "later"); exit.Code != 0 || out != "x" {
		t.Errorf("%+v %q", exit, out)
	}
}

// TestRootfs: a folder is the root, read-only, with what every jail has.
func TestRootfs(t *testing.T) {
	p := newProvider(t)
	defer closing(t, p)
	rootfs := t.TempDir()
	program, err := bin.Extract(rootfs)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(program), filepath.Join(rootfs, "prog")); err != nil {
		t.Fatal(err)
	}
	s := makeBox(t, p, sandbox.Spec{ID: "a", Workspace: t.TempDir(), Rootfs: rootfs})
	out, exit := output(t, s, "p", "/prog", "nonsense")
	if exit.Code != 125 || !strings.Contains(out, "unknown arguments") {
		t.Errorf("%+v %q", exit, out)
	}
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "q", Path: "/bin/sh"}); err == nil {
		t.Error("the host's shell is there")
	}
	_, err = p.Create(t.Context(), sandbox.Spec{ID: "b", Workspace: t.TempDir(), Rootfs: "/no/such/folder"})
	if !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Error(err)
	}
}

// TestLeavesNothing: neither sockets nor cgroups nor mounts nor processes.
func TestLeavesNothing(t *testing.T) {
	p := newProvider(t)
	for i := range 3 {
		s := makeBox(t, p, sandbox.Spec{ID: fmt.Sprint("a", i), Workspace: t.TempDir()})
		output(t, s, "p", "sh", "-c", "(setsid sleep 300 &)")
		if i > 0 {
			if err := s.Terminate(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
	}
	closing(t, p)
	sockets, err := filepath.Glob(filepath.Join(p.dir, "*.sock"))
	if err != nil || len(sockets) > 0 {
		t.Error(sockets, err)
	}
	if p.cgroups != nil {
		for _, dir := range p.cgroups.folders() {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), p.dir) {
		t.Errorf("a mount is left: %v", err)
	}
}

// TestWorkerKilled: the worker dies of SIGKILL. Its jail waits for the next one, keeps its user to itself, and ends with that one,
// with all that it has on the host.
func TestWorkerKilled(t *testing.T) {
	dir := runDir(t)
	cmd := exec.Command(os.Args[0], "worker", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &pid)
	}
	if err := errors.Join(err, cmd.Process.Kill()); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	_ = cmd.Wait()
	p, err := New(Config{RunDir: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	found, err := p.Attach(t.Context())
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	held, err := found[0].Held(t.Context())
	if err != nil || len(held) != 1 || held[0].Ended {
		t.Errorf("%+v, %v", held, err)
	}
	s := makeBox(t, p, sandbox.Spec{ID: "other", Workspace: filepath.Join(dir, "ws2")})
	if _, exit := output(t, s, "p", "true"); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	if p.users != nil && len(p.users.used) != 2 {
		t.Errorf("two jails have %d users", len(p.users.used))
	}
	if unix.Kill(pid, 0) != nil {
		t.Error("the jail is gone")
	}
	closing(t, p)
	if p.cgroups != nil {
		for _, parent := range p.cgroups.folders() {
			if left, err := filepath.Glob(parent + "/*"); err != nil || len(left) > 0 {
				t.Error(left, err)
			}
		}
	}
	for _, pattern := range []string{"*.sock", "kept/*"} {
		if left, err := filepath.Glob(filepath.Join(dir, "run", pattern)); err != nil || len(left) > 0 {
			t.Error(left, err)
		}
	}
	if unix.Kill(pid, 0) == nil {
		t.Error("the jail has outlived its second worker")
	}
}

// worker is what TestWorkerKilled kills: it tells the host's pid of its jail's supervisor, and waits.
func worker(dir string) error {
	p, err := New(Config{RunDir: filepath.Join(dir, "run")})
	if err != nil {
		return err
	}
	s, err := p.Create(context.Background(), sandbox.Spec{ID: "box", Workspace: filepath.Join(dir, "ws")})
	if err != nil {
		return err
	}
	if _, err := s.Start(context.Background(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "setsid sleep 300 & exec sleep 300"}}); err != nil {
		return err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.mother.cmd.Process.Pid, p.mother.cmd.Process.Pid))
	if err != nil {
		return err
	}
	fmt.Println(strings.TrimSpace(string(children)))
	<-s.Done()
	return errors.New("the jail ended by itself")
}

func TestConfig(t *testing.T) {
	for what, c := range map[string]Config{"none": {}, "relative": {RunDir: "run"}, "too long": {RunDir: "/" + strings.Repeat("x", 100)}} {
		if _, err := New(c); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, l := range map[string]sandbox.Limits{"memory": {MemoryBytes: 1}, "pids": {PIDs: -1}, "cpus": {CPUs: -1}, "tmp": {TmpBytes: -1}} {
		if _, err := l.WithDefaults(); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestCheck(t *testing.T) {
	if limits, err := Check(); err != nil || limits == "" {
		t.Error(limits, err)
	}
}

// TestV2 looks at what is written where cgroups are of version 2, in a folder that stands for them.
func TestV2(t *testing.T) {
	root := t.TempDir()
	c := &cgroups{parents: make(map[string]string)}
	if err := c.find(map[string]string{"2": root}, "0::/user/app/run.scope\n", "sluice-x"); err != nil || !c.v2 {
		t.Fatal(c, err)
	}
	dir := filepath.Join(c.parents["memory"], "jail")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory.max", "memory.swap.max", "cpu.max", "pids.max"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	limits, err := sandbox.Limits{CPUs: 1.5}.WithDefaults()
	if err == nil {
		err = c.limit("jail", limits)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "536870912", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "288"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
