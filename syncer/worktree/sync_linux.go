package worktree

import (
	"os"

	"golang.org/x/sys/unix"
)

// SyncFilesystem makes everything written to the file system of f durable.
func SyncFilesystem(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
