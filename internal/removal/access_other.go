//go:build unix && !linux

package removal

import (
	"os"

	"golang.org/x/sys/unix"
)

// makeAccessible gives a folder's owner all rights to it.
func makeAccessible(dir *os.File, name string) error {
	return unix.Fchmodat(int(dir.Fd()), name, 0o700, unix.AT_SYMLINK_NOFOLLOW)
}
