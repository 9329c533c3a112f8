package worktree

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback starts to write a part of f to disk, and does not wait for the end. It only moves work forward: SyncFilesystem
// makes the part durable, and reports what could not be written.
func startWriteback(f *os.File, offset, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}

const seekHole = unix.SEEK_HOLE
