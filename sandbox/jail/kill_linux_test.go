package jail

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
)

// Hardening 2: a kill from outside ends everything in a jail, also when its supervisor does not run.
func TestKillFromOutsideNeedsNoSupervisor(t *testing.T) {
	t.Parallel()
	ctx := testkit.Context(t)
	p := openProvider(t, runDir(t))
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	if p.cgroups == nil {
		t.Skip("no cgroups for this user")
	}
	s, err := p.Create(ctx, sandbox.Spec{ID: "k", Workspace: t.TempDir()})
	testkit.Must(t, err)
	_, err = s.Start(ctx, sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "for i in 1 2 3 4 5; do sleep 1000 & done; wait"}})
	testkit.Must(t, err)
	g := p.cgroups.existing(registry.NameOf("k"))
	members := func() []string { return membersOf(g) }
	if len(members()) < 2 {
		t.Fatalf("the jail's cgroup has %v, want the supervisor and a command", members())
	}
	for _, member := range members() { // nothing in the jail runs any more, its supervisor included
		pid, err := strconv.Atoi(member)
		testkit.Must(t, err)
		testkit.Must(t, unix.Kill(pid, unix.SIGSTOP))
	}
	g.kill()
	select {
	case <-s.Done():
	case <-ctx.Done():
		t.Fatalf("the jail has not ended, and has %v", members())
	}
	if left := members(); len(left) > 0 {
		t.Errorf("the sandbox has ended, and %v run", left)
	}
}

// membersOf is the pids of a cgroup's processes; none when it is gone.
func membersOf(g *cgroup) []string {
	b, _ := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.procs"))
	return strings.Fields(string(b))
}

// Hardening 2: a jail that the kernel does not end after a kill keeps no worker from starting, nor from detaching, and is a sandbox until it
// has ended. Here the first process of its pid namespace waits for a command that ended and that its tracer does not reap.
func TestJailThatTheKernelHolds(t *testing.T) {
	ctx := testkit.Context(t)
	dir := runDir(t)
	p := openProvider(t, dir)
	if p.cgroups == nil {
		testkit.Must(t, p.Close())
		t.Skip("no cgroups for this user")
	}
	s, err := p.Create(ctx, sandbox.Spec{ID: "held", Workspace: t.TempDir()})
	testkit.Must(t, err)
	_, err = s.Start(ctx, sandbox.Command{ID: "p", Path: "sleep", Args: []string{"1000"}})
	testkit.Must(t, err)
	var supervisor, command int
	for _, member := range membersOf(p.cgroups.existing(registry.NameOf("held"))) {
		pid, err := strconv.Atoi(member)
		testkit.Must(t, err)
		name, err := os.ReadFile(filepath.Join("/proc", member, "comm"))
		testkit.Must(t, err)
		if string(name) == "sleep\n" {
			command = pid
		} else {
			supervisor = pid
		}
	}
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	testkit.Must(t, unix.PtraceSeize(command))
	testkit.Must(t, p.Detach())
	testkit.Must(t, unix.Kill(supervisor, unix.SIGKILL))

	for range 2 { // the second worker starts after the first one has left
		p = openProvider(t, dir)
		found, err := p.Attach(ctx)
		testkit.Must(t, err)
		if len(found) != 1 {
			t.Fatalf("attached %d sandboxes, want the one that has not ended", len(found))
		}
		s = found[0]
		if _, err := found[0].Processes(ctx); err == nil {
			t.Error("a killed supervisor answered")
		}
		soon, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.Terminate(soon, 0); err == nil {
			t.Error("the end of a sandbox was reported that has not ended")
		}
		select {
		case <-s.Done():
			t.Error("the sandbox is done, and its processes have not ended")
		default:
		}
		testkit.Must(t, p.Detach())
	}

	p = openProvider(t, dir)
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	found, err := p.Attach(ctx)
	testkit.Must(t, err)
	_, err = unix.Wait4(command, nil, unix.WALL, nil)
	testkit.Must(t, err)
	<-found[0].Done()
}
