package jail

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest/attack"
)

func TestMain(m *testing.M) {
	testkit.Main(m, testkit.Programs{
		"worker":  func(args []string) int { return testkit.Fail(runWorker(args[0])) },
		"limited": func(args []string) int { return runLimited(args[0]) },
		"refused": func(args []string) int { return runRefused(args[0]) },
	})
}

// openProvider makes a provider in a folder, which the test closes.
func openProvider(t *testing.T, dir string) *Provider {
	t.Helper()
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), Warn: func(text string) { t.Log(text) }})
	testkit.Must(t, err)
	return p
}

// runDir makes a folder for a provider, in memory if there is room: each provider copies hundreds of links from /etc into its folder, and ext4
// without a journal spends most of the CPU time of these tests on inodes for them, because others were removed a moment ago.
func runDir(tb testing.TB) string {
	tb.Helper()
	const memory, room = "/dev/shm", 1 << 30
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || fs.Type != unix.TMPFS_MAGIC || fs.Flags&unix.ST_NOEXEC != 0 || fs.Bavail < room/uint64(fs.Bsize) ||
		unix.Access(memory, unix.W_OK) != nil {
		return testkit.ShortDir(tb)
	}
	dir, err := os.MkdirTemp(memory, "sl")
	testkit.Must(tb, err)
	tb.Cleanup(func() { testkit.RemoveAll(tb, dir) })
	return dir
}

// newProvider makes a provider and closes it after the test.
func newProvider(t *testing.T) *Provider {
	t.Helper()
	p := openProvider(t, runDir(t))
	t.Cleanup(func() { testkit.Must(t, p.Close()) })
	return p
}

func create(t *testing.T, p *Provider, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	s, err := p.Create(t.Context(), spec)
	testkit.Must(t, err)
	return s
}

func TestConformance(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Factory{Dir: runDir, New: func(t *testing.T, dir string) sandbox.Provider { return openProvider(t, dir) }})
}

// TestAttack runs the quick part of the attack suite, and all of it with SLUICE_ATTACK, which `make attack` sets.
func TestAttack(t *testing.T) {
	p := openProvider(t, testkit.ShortDir(t))
	byProcess := p.cgroups == nil
	testkit.Must(t, p.Close())
	var shared []string
	if os.Geteuid() != 0 {
		shared = []string{"pipe"} // the kernel counts their memory by the user outside of the namespace
	}
	attack.Run(t, attack.Factory{
		New: func(t *testing.T) sandbox.Provider { return openProvider(t, testkit.ShortDir(t)) },
		// A run as an ordinary user, with setpriv, has this test binary but no Go to build the probe.
		Probe: os.Getenv("SLUICE_PROBE"),
		Load:  os.Getenv("SLUICE_ATTACK") != "", Table: os.Getenv("SLUICE_ATTACK_TABLE"), MemoryByProcess: byProcess, Shared: shared,
		Root:           []string{"bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr", "var", "workspace"},
		SupervisorPIDs: supervisorThreads, Sockets: []string{"sl*/run/*.sock"},
	})
}
