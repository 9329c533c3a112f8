package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest/attack"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) {
	testkit.Main(m, testkit.Programs{"worker": func(args []string) int { return testkit.Fail(worker(args[0], args[1], args[2])) }})
}

// cell is unique to a run of the tests, because others may use and sweep the same engine.
func cell(pid int) string { return fmt.Sprint("test-", pid) }

// newProvider returns a provider with its own labels.
func newProvider(tb testing.TB, change func(*Config)) *Provider {
	tb.Helper()
	config := Config{
		RunDir: filepath.Join(testkit.ShortDir(tb), "run"), Image: dockertest.Image(tb), Cell: cell(os.Getpid()),
		Worker: strings.NewReplacer("/", ".", "#", ".").Replace(tb.Name()),
		Warn:   func(err error) { tb.Errorf("warning: %v", err) },
	}
	if change != nil {
		change(&config)
	}
	p, err := New(config)
	testkit.Must(tb, err)
	tb.Cleanup(func() { closeProvider(tb, p) })
	return p
}

// closeProvider may be called repeatedly.
func closeProvider(tb testing.TB, p *Provider) {
	tb.Helper()
	if err := p.Close(); err != nil {
		tb.Errorf("close the provider: %v", err)
	}
}

// newSandbox returns a sandbox that ends with the test.
func newSandbox(t *testing.T, p *Provider, spec sandbox.Spec) *Sandbox {
	t.Helper()
	if spec.ID == "" {
		spec.ID = "s1"
	}
	if spec.Workspace == "" {
		spec.Workspace = t.TempDir()
	}
	s, err := p.Create(t.Context(), spec)
	t.Cleanup(func() { closeProvider(t, p) })
	testkit.Must(t, err)
	created, ok := s.(*Sandbox)
	if !ok {
		t.Fatalf("sandbox is a %T, want a *Sandbox", s)
	}
	return created
}

func wantReason(t *testing.T, what string, exit sandbox.Exit, want schemas.Reason) {
	t.Helper()
	if exit.Reason != want {
		t.Errorf("%s: reason %s, want %s (%+v)", what, exit.Reason, want, exit)
	}
}

// wantSwept checks that Sweep finds this number of containers to remove.
func wantSwept(t *testing.T, p *Provider, want int) {
	t.Helper()
	n, err := p.Sweep(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "swept containers", n, want)
}

func wantNoContainer(t *testing.T, p *Provider, id string) {
	t.Helper()
	if _, err := p.client.ContainerInspect(t.Context(), id); err == nil {
		t.Errorf("container %s still exists", id)
	}
}

func TestConformance(t *testing.T) {
	dockertest.Image(t)
	sandboxtest.Run(t, sandboxtest.Factory{
		New: func(t *testing.T, dir string) sandbox.Provider {
			return newProvider(t, func(c *Config) { c.RunDir = filepath.Join(dir, "run") })
		},
	})
}

// TestAttack runs the quick part of the attack suite. SLUICE_ATTACK, which `make attack` sets, runs all of it.
func TestAttack(t *testing.T) {
	dockertest.Image(t)
	var shared []string
	if os.Geteuid() != 0 {
		shared = []string{"inotify", "signal", "timer", "pipe", "queue"} // the containers have the worker's user
	}
	attack.Run(t, attack.Factory{
		New:  func(t *testing.T) sandbox.Provider { return newProvider(t, nil) },
		Load: os.Getenv("SLUICE_ATTACK") != "", Table: os.Getenv("SLUICE_ATTACK_TABLE"), Shared: shared,
		Root:           []string{".dockerenv", "bin", "dev", "etc", "proc", "root", "sluice", "sys", "tmp", "workspace"},
		SupervisorPIDs: supervisorPIDs, Sockets: []string{"sl*/run/docker/*.sock"},
	})
}
