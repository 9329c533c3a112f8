package jail

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest/attack"
)

func TestMain(m *testing.M) {
	testkit.Main(m, testkit.Programs{"worker": func(args []string) int { return testkit.Fail(runWorker(args[0])) }})
}

// openProvider makes a provider that the test closes.
func openProvider(t *testing.T) *Provider {
	t.Helper()
	p, err := New(Config{RunDir: filepath.Join(testkit.ShortDir(t), "run"), Warn: func(text string) { t.Log(text) }})
	testkit.Must(t, err)
	return p
}

// newProvider makes a provider and closes it after the test.
func newProvider(t *testing.T) *Provider {
	t.Helper()
	p := openProvider(t)
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	return p
}

func create(t *testing.T, p *Provider, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := p.Create(t.Context(), spec)
	testkit.Must(t, err)
	return s
}

// run runs a command to its end and returns its output of both streams.
func run(t *testing.T, s sandbox.Sandbox, id, path string, args ...string) (string, sandbox.Exit) {
	t.Helper()
	p, err := s.Start(t.Context(), sandbox.Command{ID: id, Path: path, Args: args})
	testkit.Must(t, err)
	var text strings.Builder
	for {
		out, err := p.Read(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		testkit.Must(t, err)
		text.Write(out.Data)
	}
	exit, err := p.Wait(t.Context())
	testkit.Must(t, err)
	return text.String(), exit
}

// wantRun fails the test unless a command exits with 0 and prints want.
func wantRun(t *testing.T, s sandbox.Sandbox, want, id, path string, args ...string) {
	t.Helper()
	got, exit := run(t, s, id, path, args...)
	if exit.Code != 0 {
		t.Errorf("%s: exit = %+v, want code 0", id, exit)
	}
	testkit.Equal(t, "the output of "+id, got, want)
}

// wantNoFiles fails the test when a pattern matches a file.
func wantNoFiles(t *testing.T, pattern string) {
	t.Helper()
	left, err := filepath.Glob(pattern)
	testkit.Must(t, err)
	if len(left) > 0 {
		t.Errorf("files left of %s: %q, want none", pattern, left)
	}
}

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Factory{
		New: func(t *testing.T) sandbox.Provider { return openProvider(t) },
		Restart: func(t *testing.T, detached sandbox.Provider) sandbox.Provider {
			d, ok := detached.(*Provider)
			if !ok {
				t.Fatalf("provider is a %T, want a *Provider", detached)
			}
			p, err := New(Config{RunDir: d.dir})
			testkit.Must(t, err)
			return p
		},
	})
}

// TestAttack runs the quick part of the attack suite, and all of it with SLUICE_ATTACK, which `make attack` sets.
func TestAttack(t *testing.T) {
	p := openProvider(t)
	byProcess := p.cgroups == nil
	testkit.Must(t, p.Close())
	attack.Run(t, attack.Factory{
		New: func(t *testing.T) sandbox.Provider { return openProvider(t) },
		// A run as an ordinary user, with setpriv, has this test binary but no Go to build the probe.
		Probe: os.Getenv("SLUICE_PROBE"),
		Load:  os.Getenv("SLUICE_ATTACK") != "", MemoryByProcess: byProcess,
		Root:           []string{"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr", "var", "workspace"},
		SupervisorPIDs: supervisorThreads, Sockets: []string{"sl*/run/*.sock"},
	})
}
