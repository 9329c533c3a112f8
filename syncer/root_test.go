package syncer_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestFifoIsNoFolder syncs a FIFO: to open one waits for a writer, and no Ctrl+C ends that.
func TestFifoIsNoFolder(t *testing.T) {
	w := treetest.New(t)
	store := openDir(t, t.TempDir())
	defer closeDir(t, store)
	w.Dir = w.Path("fifo")
	w.Must(unix.Mkfifo(w.Dir, 0o600))
	for _, op := range treetest.PushAndPull() {
		_, err := op(w.Syncer(store), t.Context())
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	}
}
