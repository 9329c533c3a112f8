package jail

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "worker" {
		fmt.Fprintln(os.Stderr, worker(os.Args[2]))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// runDir is a short folder: the path of a unix socket is bounded, and the name of a test is not.
func runDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

func newProvider(tb testing.TB) *Provider {
	tb.Helper()
	p, err := New(Config{RunDir: filepath.Join(runDir(tb), "run"), Warn: func(text string) { tb.Log(text) }})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Factory{
		New: func(t *testing.T) sandbox.Provider { return newProvider(t) },
		Next: func(t *testing.T, left sandbox.Provider) sandbox.Provider {
			l, ok := left.(*Provider)
			if !ok {
				t.Fatalf("%T", left)
			}
			p, err := New(Config{RunDir: l.dir})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}
