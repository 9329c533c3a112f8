package local

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/sandbox/supervisor"
)

// TestMain makes the test binary a supervisor when it is run as one, so that the supervisor's own code runs under the race
// detector too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervisor" {
		os.Exit(supervisor.Main(os.Args[2:]))
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
