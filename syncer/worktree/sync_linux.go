package worktree

import "golang.org/x/sys/unix"

// syncFiles makes everything written to fd's file system durable.
func syncFiles(fd int) error { return unix.Syncfs(fd) }
