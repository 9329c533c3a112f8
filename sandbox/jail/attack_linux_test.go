package jail

import (
	"os"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest/attack"
)

// TestAttack is the quick part of the attack suite; all of it with SLUICE_ATTACK, which `make attack` sets.
func TestAttack(t *testing.T) {
	p := newProvider(t)
	byProcess := p.cgroups == nil
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	attack.Run(t, attack.Factory{
		New: func(t *testing.T) sandbox.Provider { return newProvider(t) },
		// An ordinary user's run, with setpriv, has this binary alone, and no Go.
		Probe: os.Getenv("SLUICE_PROBE"),
		Hard:  os.Getenv("SLUICE_ATTACK") != "", MemoryByProcess: byProcess,
		Root:  []string{"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr", "var", "workspace"},
		Spare: supervisorThreads, Sockets: []string{"sl*/run/*.sock"},
	})
}
