package jail

import (
	"os"
	"path/filepath"
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
	members := func() []string {
		b, _ := os.ReadFile(filepath.Join(g.dirs[0], "cgroup.procs")) // it is removed with the jail
		return strings.Fields(string(b))
	}
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
