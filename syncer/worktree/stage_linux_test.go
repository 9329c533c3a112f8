package worktree_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// TestLeftoversOpenNoFifo has a process in the sandbox that puts a FIFO in the place of an interrupted pull's stage, again and again, while the
// next pull looks into it: to open one waits for a writer, and there is none.
func TestLeftoversOpenNoFifo(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	defer func() { testkit.Must(t, root.Close()) }()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "stage"), 0o700))
	var leftovers worktree.Leftovers
	testkit.Must(t, leftovers.Keep(root, "stage"))
	kept, err := filepath.Glob(filepath.Join(dir, state.ReservedName+"*"))
	testkit.Must(t, err)
	fifo := filepath.Join(dir, "fifo")
	testkit.Must(t, unix.Mkfifo(fifo, 0o600))

	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5_000 {
			looking := leftovers // each looks again
			looking.Take(state.ReservedName+".tmp-x/1-y", &state.Node{})
		}
	}()
	ctx := testkit.Context(t)
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			t.Error("a pull waits for a writer of the FIFO")
			for _, at := range []string{fifo, kept[0]} { // one of them is the FIFO
				if w, err := os.OpenFile(at, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
					defer func() { _ = w.Close() }() // it was only there to be opened
				}
			}
			<-done
			return
		default:
			testkit.Must(t, unix.Renameat2(unix.AT_FDCWD, fifo, unix.AT_FDCWD, kept[0], unix.RENAME_EXCHANGE))
		}
	}
}
