package attack

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
)

// hoard has the attacker take what it can, and wants another sandbox to get its part.
func (f *fixture) hoard(t *testing.T) {
	t.Helper()
	victim := f.another(t, "victim")
	p, err := f.start(f.attacker, sandbox.Command{Path: "./probe", Args: []string{"hoard"}})
	testkit.Must(t, err)
	took := f.readUntil(t, p, "ready")
	t.Logf("the attacker took: %q", strings.Fields(took))
	got := results(f.run(t, victim, sandbox.Command{Path: "./probe", Args: []string{"share"}, Timeout: testkit.Timeout / 2}).Stdout)
	testkit.Must(t, p.Kill(0))
	f.finish(t, p)
	testkit.Must(t, victim.Terminate(f.ctx, 0))
	testkit.Equal(t, "io_setup, whose contexts are counted for the machine", got["aio"], "ENOSYS")
	for _, name := range []string{"inotify", "signal", "timer", "queue", "pipe"} {
		if got[name] != done && !slices.Contains(f.factory.Shared, name) {
			t.Errorf("%s in another sandbox: result = %q, want %s", name, got[name], done)
		}
	}
}
