package worktree

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncFilesystem makes f durable, and starts to make everything written before durable. Darwin has no call for one file
// system alone.
func SyncFilesystem(f *os.File) error { return errors.Join(unix.Sync(), f.Sync()) }

// inMemory is false: darwin has no such file systems by default.
func inMemory(*os.File) bool { return false }

// MachineID returns the name of this machine's run since its last start. "" is not known.
func MachineID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}

// openForWriting is false: darwin has no call for it.
func openForWriting(int) bool { return false }
