package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 4 && os.Args[1] == "worker" {
		fmt.Fprintln(os.Stderr, worker(os.Args[2], os.Args[3], os.Args[4]))
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

// cell is that of one run of the tests: others may use the same engine, and sweep.
func cell(pid int) string { return fmt.Sprint("test-", pid) }

// newProvider makes a provider whose containers are no other test's.
func newProvider(tb testing.TB, change func(*Config)) *Provider {
	tb.Helper()
	config := Config{
		RunDir: filepath.Join(runDir(tb), "run"), Image: dockertest.Image(tb), Cell: cell(os.Getpid()),
		Worker: strings.NewReplacer("/", ".", "#", ".").Replace(tb.Name()),
		Warn:   func(err error) { tb.Error(err) },
	}
	if change != nil {
		change(&config)
	}
	p, err := New(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { shut(tb, p) })
	return p
}

// shut closes a provider, once more where that was done already.
func shut(tb testing.TB, p *Provider) {
	tb.Helper()
	if err := p.Close(); err != nil {
		tb.Error(err)
	}
}

func TestConformance(t *testing.T) {
	dockertest.Image(t)
	sandboxtest.Run(t, sandboxtest.Factory{
		New: func(t *testing.T) sandbox.Provider { return newProvider(t, nil) },
		Next: func(t *testing.T, left sandbox.Provider) sandbox.Provider {
			l, ok := left.(*Provider)
			if !ok {
				t.Fatalf("%T", left)
			}
			return newProvider(t, func(c *Config) { *c = l.config })
		},
	})
}
