package worktree

import "golang.org/x/sys/unix"

// syncFiles makes everything written durable. Darwin has no call for one file system alone.
func syncFiles(int) error { return unix.Sync() }
