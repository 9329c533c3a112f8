package local

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
)

// The test binary is also a supervisor, so that the race detector watches the supervisor's code too.
func TestMain(m *testing.M) {
	testkit.Main(m, testkit.Programs{
		"supervisor": supervisor.Main,
		"worker":     func(args []string) int { return testkit.Fail(worker(args[0], args[1])) },
	})
}

func newProvider(t *testing.T, dir string, command ...string) *Provider {
	t.Helper()
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), Supervisor: command, Warn: func(string) {}})
	testkit.Must(t, err)
	return p
}

// The suite runs with the embedded supervisor, and again with this test binary as the supervisor.
func TestConformance(t *testing.T) {
	t.Run("Embedded", func(t *testing.T) {
		sandboxtest.Run(t, sandboxtest.Factory{New: func(t *testing.T, dir string) sandbox.Provider { return newProvider(t, dir) }})
	})
	t.Run("Self", func(t *testing.T) {
		self, err := os.Executable()
		testkit.Must(t, err)
		logs := t.TempDir()
		race := "GORACE=atexit_sleep_ms=0 log_path=" + filepath.Join(logs, "race")
		sandboxtest.Run(t, sandboxtest.Factory{
			New: func(t *testing.T, dir string) sandbox.Provider {
				return newProvider(t, dir, "/usr/bin/env", race, self, "supervisor")
			},
		})
		reports, err := filepath.Glob(filepath.Join(logs, "*"))
		testkit.Must(t, err)
		for _, path := range reports {
			b, err := os.ReadFile(path)
			t.Errorf("race report of a supervisor: %s, read error %v", b, err)
		}
	})
}

// processTree is a script with a child and a daemon. It prints the pid of its supervisor, and then its own three pids.
const processTree = `sleep 300 & a=$!; (setsid sh -c 'echo $$ >daemon; exec sleep 300' >/dev/null 2>&1 &)
while [ ! -s daemon ]; do :; done; echo $PPID $$ $a $(cat daemon); exec sleep 300`

// worker creates a sandbox, starts a process tree in it, and copies the tree's output until the test kills this program.
func worker(dir, reattachWindow string) error {
	window, err := time.ParseDuration(reattachWindow)
	if err != nil {
		return err
	}
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), ReattachWindow: window, Warn: func(string) {}})
	if err != nil {
		return err
	}
	s, err := p.Create(context.Background(), sandbox.Spec{ID: "s1", Workspace: filepath.Join(dir, "ws")})
	if err != nil {
		return err
	}
	q, err := s.Start(context.Background(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", processTree}})
	if err != nil {
		return err
	}
	for {
		out, err := q.Read(context.Background())
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(out.Data); err != nil {
			return err
		}
	}
}
