package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

// TestPrestartedJailIsUsed: after the second Create, jails are prestarted. The next Create uses one, with its own limits and workspace,
// and skips one that has died.
func TestPrestartedJailIsUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no prestarted jails: run the test as root")
	}
	p := newProvider(t)
	dir := t.TempDir()
	createLimited := func(name string) sandbox.Sandbox {
		return create(t, p, sandbox.Spec{ID: name, Workspace: filepath.Join(dir, name), Limits: sandbox.Limits{TmpBytes: 1 << 20}})
	}
	ready := func() []*pendingJail {
		p.prestarted.fillers.Wait()
		p.prestarted.mu.Lock()
		defer p.prestarted.mu.Unlock()
		return p.prestarted.ready
	}
	createLimited("one")
	if n := len(ready()); n != 0 {
		t.Errorf("%d jails are prestarted after the first, want none", n)
	}
	createLimited("two")
	jails := ready()
	if len(jails) != prestartedCount {
		t.Fatalf("%d jails are prestarted, want %d", len(jails), prestartedCount)
	}
	jails[0].kill()
	testkit.Must(t, jails[0].wait())
	s := createLimited("three")
	script := "id -un; pwd; echo x >file; df -k /tmp | tail -1 | awk '{print $2}'; touch /run/x 2>/dev/null || echo closed; ls -A /workspace"
	sandboxtest.WantShell(t, s, "p", script, "sandboxuser\n/workspace\n1024\nclosed\nfile\n")
	_, err := os.Stat(filepath.Join(dir, "three", "file"))
	testkit.Must(t, err)
	// The second process that was prestarted runs the supervisor now.
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", jails[1].pid))
	testkit.Must(t, err)
	if want := "sluice-supervisor"; !strings.HasPrefix(string(name), want) {
		t.Errorf("command line of the prestarted process = %q, want it to start with %q", name, want)
	}
}
