package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

func newProvider(t testing.TB, command ...string) *Provider {
	t.Helper()
	p, err := New(Config{RunDir: filepath.Join(runDir(t), "run"), Supervisor: command, Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConformance runs the suite with the embedded supervisor, and once more with this test binary as the supervisor, whose
// code the race detector then watches.
func TestConformance(t *testing.T) {
	t.Run("Embedded", func(t *testing.T) {
		sandboxtest.Run(t, sandboxtest.Factory{New: func(t *testing.T) sandbox.Provider { return newProvider(t) }})
	})
	t.Run("Self", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		sandboxtest.Run(t, sandboxtest.Factory{New: func(t *testing.T) sandbox.Provider { return newProvider(t, self, "supervisor") }})
	})
}
