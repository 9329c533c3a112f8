package dirstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncAll makes the file durable, and asks for everything written before to be so too.
func syncAll(f *os.File) error { return errors.Join(unix.Sync(), f.Sync()) }
