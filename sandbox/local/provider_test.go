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

// nextProvider is another one on the folder of one that has left.
func nextProvider(t *testing.T, left sandbox.Provider) sandbox.Provider {
	t.Helper()
	l, ok := left.(*Provider)
	if !ok {
		t.Fatalf("%T", left)
	}
	p, err := New(Config{RunDir: l.dir, Supervisor: l.command, Warn: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConformance runs the suite with the embedded supervisor, and once more with this test binary as the supervisor, whose
// code the race detector then watches.
func TestConformance(t *testing.T) {
	t.Run("Embedded", func(t *testing.T) {
		sandboxtest.Run(t, sandboxtest.Factory{New: func(t *testing.T) sandbox.Provider { return newProvider(t) }, Next: nextProvider})
	})
	t.Run("Self", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		logs := t.TempDir()
		race := "GORACE=atexit_sleep_ms=0 log_path=" + filepath.Join(logs, "race")
		sandboxtest.Run(t, sandboxtest.Factory{
			New:  func(t *testing.T) sandbox.Provider { return newProvider(t, "/usr/bin/env", race, self, "supervisor") },
			Next: nextProvider,
		})
		reports, err := filepath.Glob(filepath.Join(logs, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range reports {
			b, err := os.ReadFile(path)
			t.Errorf("%s, %v", b, err)
		}
	})
}
