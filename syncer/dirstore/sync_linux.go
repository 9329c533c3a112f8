package dirstore

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncAll makes the file durable, and everything written to its file system before.
func syncAll(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
