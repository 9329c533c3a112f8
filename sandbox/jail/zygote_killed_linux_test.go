package jail

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

// Promises 16: a provider whose zygote is killed starts a new one, and the jails that run stay.
func TestKilledZygoteIsStartedAgain(t *testing.T) {
	p := newProvider(t)
	dir := t.TempDir()
	before := create(t, p, sandbox.Spec{ID: "before", Workspace: filepath.Join(dir, "before")})
	for i := range 4 { // some come from prestarted jails of a killed zygote
		killed := p.zygote.zygote
		testkit.Must(t, killed.cmd.Process.Kill())
		<-killed.gone
		for j := range 3 {
			name := fmt.Sprintf("after-%d-%d", i, j)
			after := create(t, p, sandbox.Spec{ID: name, Workspace: filepath.Join(dir, name)})
			sandboxtest.WantShell(t, after, "p", "echo after", "after\n")
		}
		if p.zygote.zygote == killed {
			t.Fatal("the zygote was not replaced")
		}
		sandboxtest.WantShell(t, before, fmt.Sprint("p", i), "echo before", "before\n")
	}
}
