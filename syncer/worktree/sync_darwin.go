package worktree

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncFilesystem makes everything written durable. Darwin has no call for one file system alone.
func SyncFilesystem(*os.File) error { return unix.Sync() }
