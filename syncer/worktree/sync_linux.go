package worktree

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// SyncFilesystem makes everything written to the file system of f durable.
func SyncFilesystem(f *os.File) error { return unix.Syncfs(int(f.Fd())) }

// inMemory reports whether a folder is of a file system without a disk. There a write through a shared mapping changes no time, not
// even at msync, so that only the content shows it.
func inMemory(dir *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(dir.Fd()), &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

// MachineID returns the name of this machine, or, where it has none, of its run since the last start. "" is not known.
func MachineID() string {
	for _, name := range []string{"/etc/machine-id", "/proc/sys/kernel/random/boot_id"} {
		data, _ := os.ReadFile(name)
		if id := strings.TrimSpace(string(data)); len(id) >= 32 { // a new machine has a shorter text at first
			return id
		}
	}
	return ""
}

// openForWriting reports whether another process has a file open for writing, or maps it: its next write to a page that is mapped and not
// on disk yet changes no time. The kernel refuses a read lease then, and only then. Where the file is another user's, it is not known.
func openForWriting(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}
