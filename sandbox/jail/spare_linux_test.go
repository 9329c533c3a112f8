package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
)

// TestSpare: from the second jail on some are begun ahead; the next jail is one of them, with its own limits and workspace, and one
// that has died is not used.
func TestSpare(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user's jails are made in one go")
	}
	p := newProvider(t)
	defer closing(t, p)
	dir := t.TempDir()
	create := func(name string) sandbox.Sandbox {
		return makeBox(t, p, sandbox.Spec{ID: name, Workspace: filepath.Join(dir, name), Limits: sandbox.Limits{TmpBytes: 1 << 20}})
	}
	ready := func() []int {
		p.stock.making.Wait()
		p.stock.mu.Lock()
		defer p.stock.mu.Unlock()
		var pids []int
		for _, s := range p.stock.ready {
			pids = append(pids, s.pid)
		}
		return pids
	}
	create("one")
	if pids := ready(); len(pids) != 0 {
		t.Errorf("%d are begun after the first jail", len(pids))
	}
	create("two")
	pids := ready()
	if len(pids) != stocked {
		t.Fatalf("%d are begun, not %d", len(pids), stocked)
	}
	p.stock.ready[0].kill()
	if err := p.stock.ready[0].wait(); err != nil {
		t.Fatal(err)
	}
	s := create("three")
	out, exit := output(t, s, "p", "sh", "-c", "id -un; pwd; echo x >file; df -k /tmp | tail -1 | awk '{print $2}'; touch /run/x 2>/dev/null || echo closed; ls -A /workspace")
	if exit.Code != 0 || out != "sandboxuser\n/workspace\n1024\nclosed\nfile\n" {
		t.Errorf("%+v %q", exit, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "three", "file")); err != nil {
		t.Error(err)
	}
	// Its main process is the one that was begun: the kernel names it by what it runs now.
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[1]))
	if err != nil || string(name[:len("sluice-supervisor")]) != "sluice-supervisor" {
		t.Errorf("%q %v", name, err)
	}
}
