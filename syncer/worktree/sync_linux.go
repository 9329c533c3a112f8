package worktree

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncFilesystem makes everything written to the folder's file system durable.
func SyncFilesystem(dir *os.File) error { return unix.Syncfs(int(dir.Fd())) }
