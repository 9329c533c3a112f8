package worktree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFilesystem makes f durable, and starts to make everything written before durable. Darwin has no call for one file
// system alone.
func SyncFilesystem(f *os.File) error { return errors.Join(unix.Sync(), f.Sync()) }
