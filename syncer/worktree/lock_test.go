package worktree_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// A child process has a copy of every open file until its exec. The copy must not hold the lock.
func TestUnlockEndsTheLockOfACopy(t *testing.T) {
	path := t.TempDir()
	open := func() *os.File {
		dir, err := os.Open(path)
		testkit.Must(t, err)
		return dir
	}
	first, second := open(), open()
	testkit.Must(t, worktree.TryLock(first))
	child, err := unix.Dup(int(first.Fd()))
	testkit.Must(t, err)
	testkit.Must(t, worktree.Unlock(first))
	testkit.Must(t, first.Close())
	testkit.Must(t, worktree.TryLock(second))
	testkit.Must(t, second.Close())
	testkit.Must(t, unix.Close(child))
}
