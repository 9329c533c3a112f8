package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor"
)

// TestMain makes the test binary a supervisor when it is run as one, so that the supervisor's own code runs under the race
// detector too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
	if len(os.Args) > 3 && os.Args[1] == "worker" {
		fmt.Fprintln(os.Stderr, worker(os.Args[2], os.Args[3]))
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

// tree is a script with a child and a daemon, which tells its supervisor's pid and all of its own.
const tree = `sleep 300 & a=$!; (setsid sh -c 'echo $$ >daemon; exec sleep 300' >/dev/null 2>&1 &)
while [ ! -s daemon ]; do :; done; echo $PPID $$ $a $(cat daemon); exec sleep 300`

// worker is what killedWorker kills: it makes a sandbox, starts a tree, passes on what that prints, and waits.
func worker(dir, reattachWindow string) error {
	d, err := time.ParseDuration(reattachWindow)
	if err != nil {
		return err
	}
	p, err := New(Config{RunDir: filepath.Join(dir, "run"), ReattachWindow: d, Warn: func(string) {}})
	if err != nil {
		return err
	}
	s, err := p.Create(context.Background(), sandbox.Spec{ID: "box", Workspace: filepath.Join(dir, "ws")})
	if err != nil {
		return err
	}
	q, err := s.Start(context.Background(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", tree}})
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
