package dirstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncAll makes the file durable, and starts to make everything written before durable.
func syncAll(f *os.File) error { return errors.Join(unix.Sync(), f.Sync()) }
