package jail

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

// Ten minutes 15: a configured pool is full before the first jail, and filled again after it.
func TestPoolIsReadyBeforeTheFirstJail(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user has no prestarted jails: run the test as root")
	}
	const size = 3
	p, err := New(Config{RunDir: testkit.ShortDir(t), Pool: size})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	ready := func() int {
		p.prestarted.fillers.Wait()
		p.prestarted.mu.Lock()
		defer p.prestarted.mu.Unlock()
		return len(p.prestarted.ready)
	}
	testkit.Equal(t, "jails before Run", ready(), 0)
	testkit.Must(t, p.Run(t.Context()))
	testkit.Equal(t, "jails after Run", ready(), size)
	first := p.prestarted.ready[0].pid
	s := create(t, p, sandbox.Spec{ID: "one", Workspace: filepath.Join(t.TempDir(), "one")})
	sandboxtest.WantShell(t, s, "p", "pwd", "/workspace\n")
	testkit.Equal(t, "jails after one was used", ready(), size)
	for _, j := range p.prestarted.ready {
		if j.pid == first {
			t.Errorf("the prestarted jail %d was not used", first)
		}
	}
}
