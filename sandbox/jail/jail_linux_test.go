package jail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/supervisor/bin"
	"github.com/sluice-dev/sluice/schemas"
)

// TestJailMapsOwners: on the host, the worker owns what a jail creates in its workspace; in the jail, sandboxuser owns what the worker
// creates there.
func TestJailMapsOwners(t *testing.T) {
	p := newProvider(t)
	ws := t.TempDir()
	s := create(t, p, sandbox.Spec{ID: "a", Workspace: ws})
	testkit.Must(t, os.WriteFile(filepath.Join(ws, "given"), []byte("x"), 0o600))
	sandboxtest.WantShell(t, s, "p", "id -un; echo y >>given && mkdir -p made/below && echo z >made/below/file && stat -c %U given made",
		"sandboxuser\nsandboxuser\nsandboxuser\n")
	for _, name := range []string{"given", "made", "made/below/file"} {
		info, err := os.Stat(filepath.Join(ws, name))
		testkit.Must(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("%s: stat is a %T", name, info.Sys())
		}
		if int(st.Uid) != os.Geteuid() {
			t.Errorf("%s: owner = %d, want the worker's %d", name, st.Uid, os.Geteuid())
		}
	}
}

// TestJailOwnsUnmappedWorkspace: where a file system cannot map owners, the jail's user owns the files.
func TestJailOwnsUnmappedWorkspace(t *testing.T) {
	ws := t.TempDir()
	if err := unix.Mount("none", ws, "ramfs", 0, ""); err != nil {
		t.Skipf("mount a ramfs: %v; run the test as root", err)
	}
	defer func() { testkit.Must(t, unix.Unmount(ws, 0)) }()
	p := openProvider(t, runDir(t))
	defer func() { testkit.Must(t, p.Close()) }()
	testkit.Must(t, os.WriteFile(filepath.Join(ws, "given"), []byte("x"), 0o600))
	s := create(t, p, sandbox.Spec{ID: "a", Workspace: ws})
	sandboxtest.WantShell(t, s, "p", "echo y >>given && cat given && echo z >made", "xy\n")
	testkit.Must(t, os.WriteFile(filepath.Join(ws, "later"), []byte("x"), 0o600))
	sandboxtest.WantShell(t, s, "q", "cat later", "x")
}

// TestJailRootfsIsFolder: a folder is the read-only root, with what every jail has.
func TestJailRootfsIsFolder(t *testing.T) {
	p := newProvider(t)
	rootfs := t.TempDir()
	program, err := bin.Extract(rootfs)
	testkit.Must(t, err)
	testkit.Must(t, os.Symlink(filepath.Base(program), filepath.Join(rootfs, "prog")))
	s := create(t, p, sandbox.Spec{ID: "a", Workspace: t.TempDir(), Rootfs: rootfs})
	wantSupervisorUsage(t, s, "/prog")
	if _, err := s.Start(t.Context(), sandbox.Command{ID: "q", Path: "/bin/sh"}); err == nil {
		t.Error("start /bin/sh: no error, want one: the host's shell must not be visible")
	}
	_, err = p.Create(t.Context(), sandbox.Spec{ID: "b", Workspace: t.TempDir(), Rootfs: "/no/such/folder"})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

// wantSupervisorUsage runs the supervisor's program with arguments that it rejects: it is a program that needs no other file.
func wantSupervisorUsage(t *testing.T, s sandbox.Sandbox, path string) {
	t.Helper()
	p := sandboxtest.Start(t, s, sandbox.Command{ID: "p" + filepath.Base(path), Path: path, Args: []string{"nonsense"}})
	out, exit := sandboxtest.MustFinish(t, p)
	if exit.Code != 125 {
		t.Errorf("%s: exit = %+v, want code 125", path, exit)
	}
	if want := "unknown arguments"; !strings.Contains(out, want) {
		t.Errorf("%s: output = %q, want it to contain %q", path, out, want)
	}
}

// TestCloseRemovesEverything: no socket, cgroup, mount or process is left.
func TestCloseRemovesEverything(t *testing.T) {
	p := openProvider(t, runDir(t))
	for i := range 3 {
		s := create(t, p, sandbox.Spec{ID: fmt.Sprint("a", i), Workspace: t.TempDir()})
		sandboxtest.Shell(t, s, "p", "(setsid sleep 300 &)")
		if i > 0 {
			testkit.Must(t, s.Terminate(t.Context(), 0))
		}
	}
	testkit.Must(t, p.Close())
	sandboxtest.WantNoFiles(t, filepath.Join(p.dir, "*.sock"))
	if p.cgroups != nil {
		for _, dir := range p.cgroups.folders() {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("cgroup %s: stat error = %v, want not found", dir, err)
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	testkit.Must(t, err)
	if strings.Contains(string(mounts), p.dir) {
		t.Errorf("a mount of %s is left, want none", p.dir)
	}
}

// TestFailedCreateEndsJail: Create fails after the jail has its final program, because the record cannot be written. No descriptor
// and no socket is left, and no process: Close waits for the zygote, which waits for its children.
func TestFailedCreateEndsJail(t *testing.T) {
	p := newProvider(t)
	before := openPIDFDs(t)
	testkit.Must(t, os.RemoveAll(filepath.Join(p.dir, "kept")))
	_, err := p.Create(t.Context(), sandbox.Spec{ID: "a", Workspace: t.TempDir()})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	for _, pidfd := range openPIDFDs(t) {
		if !slices.Contains(before, pidfd) { // the runtime closes those that earlier tests left
			t.Errorf("a pidfd is left, want none: %s", pidfd)
		}
	}
	sandboxtest.WantNoFiles(t, filepath.Join(p.dir, "*.sock"))
}

// openPIDFDs returns the number and the process of each open pidfd.
func openPIDFDs(t *testing.T) (out []string) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fdinfo/*")
	testkit.Must(t, err)
	for _, fd := range fds {
		info, err := os.ReadFile(fd)
		if _, of, found := strings.Cut(string(info), "\nPid:"); err == nil && found {
			out = append(out, filepath.Base(fd)+" of process "+strings.TrimSpace(of))
		}
	}
	return out
}

// TestJailOutlivesKilledWorker: a jail waits for the next worker after SIGKILL, keeps its user id, and ends with that worker, with
// everything that it has on the host.
func TestJailOutlivesKilledWorker(t *testing.T) {
	dir := testkit.ShortDir(t)
	pid, err := strconv.Atoi(sandboxtest.KilledWorker(t, "worker", dir)) // of the jail's supervisor, on the host
	testkit.Must(t, err)
	p := openProvider(t, dir)
	sandboxtest.AttachOne(t, p)
	s := create(t, p, sandbox.Spec{ID: "other", Workspace: filepath.Join(dir, "ws2")})
	sandboxtest.WantShell(t, s, "p", "true", "")
	if p.users != nil && p.users.Used() != 2 {
		t.Errorf("two jails have %d user ids, want 2", p.users.Used())
	}
	if !testkit.Alive(pid) {
		t.Errorf("the attached jail's process %d has ended, want it alive", pid)
	}
	testkit.Must(t, p.Close())
	if p.cgroups != nil {
		for _, parent := range p.cgroups.folders() {
			sandboxtest.WantNoFiles(t, parent+"/*")
		}
	}
	sandboxtest.WantNoFiles(t, filepath.Join(dir, "run", "*.sock"), filepath.Join(dir, "run", "kept/*"))
	if testkit.Alive(pid) {
		t.Errorf("the jail's process %d is alive after its second worker ended, want it gone", pid)
	}
}

// runWorker is the program that a test kills: it prints the pid of its jail's supervisor and waits.
func runWorker(dir string) error {
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
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.zygote.zygote.cmd.Process.Pid, p.zygote.zygote.cmd.Process.Pid))
	if err != nil {
		return err
	}
	fmt.Println(strings.TrimSpace(string(children)))
	<-s.Done()
	return errors.New("the jail ended by itself")
}

// TestJailUsesHostNetworkOnRequest: only a Spec with the host's network gets it, and then resolves names as the host does.
func TestJailUsesHostNetworkOnRequest(t *testing.T) {
	p := newProvider(t)
	host, err := os.Readlink("/proc/self/ns/net")
	testkit.Must(t, err)
	for _, c := range []struct {
		network schemas.Network
		shared  bool
	}{{"", false}, {schemas.NetworkNone, false}, {schemas.NetworkHost, true}} {
		s := create(t, p, sandbox.Spec{ID: "net" + string(c.network), Workspace: t.TempDir(), Network: c.network})
		out, exit := sandboxtest.Shell(t, s, "p", "readlink /proc/self/ns/net; cat /etc/resolv.conf")
		if exit.Code != 0 {
			t.Fatalf("network %q: exit = %+v, want code 0; output %q", c.network, exit, out)
		}
		namespace, resolver, _ := strings.Cut(out, "\n")
		if (namespace == host) != c.shared {
			t.Errorf("network %q: namespace = %s, the host's is %s, want the same: %v", c.network, namespace, host, c.shared)
		}
		if want, err := os.ReadFile("/etc/resolv.conf"); c.shared && err == nil && resolver != string(want) {
			t.Errorf("network %q: resolv.conf = %q, want the host's %q", c.network, resolver, want)
		}
		if !c.shared && resolver != "" {
			t.Errorf("network %q: resolv.conf = %q, want it empty", c.network, resolver)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	for name, c := range map[string]Config{"none": {}, "relative": {RunDir: "run"}, "too long": {RunDir: "/" + strings.Repeat("x", 100)}} {
		_, err := New(c)
		sandboxtest.WantCode(t, name, err, schemas.CodeInvalidArgument)
	}
}

func TestCheckReturnsLimits(t *testing.T) {
	support, err := Check(testkit.ShortDir(t))
	testkit.Must(t, err)
	if support.Limits == "" {
		t.Error("limits are empty, want a description")
	}
}

// TestCgroupV2Limits checks what is written for cgroups v2, in an ordinary folder.
func TestCgroupV2Limits(t *testing.T) {
	c := &cgroupTree{parents: make(map[string]string)}
	testkit.Must(t, c.find(map[string]string{"2": t.TempDir()}, "0::/user/app/run.scope\n", "sluice-x"))
	testkit.Equal(t, "version", c.version, 2)
	dir := filepath.Join(c.parents["memory"], "jail")
	testkit.Must(t, os.MkdirAll(dir, 0o755))
	want := map[string]string{"memory.max": "536870912", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "288"}
	for name := range want {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	limits, err := sandbox.Limits{CPUs: 1.5}.WithDefaults()
	testkit.Must(t, err)
	testkit.Must(t, c.setLimits("jail", limits))
	got := make(map[string]string)
	for name := range want {
		b, err := os.ReadFile(filepath.Join(dir, name))
		testkit.Must(t, err)
		got[name] = string(b)
	}
	testkit.Equal(t, "the cgroup's files", got, want)
}
