package removal

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// makeAccessible gives a folder's owner all rights to it. Linux changes no mode by a name without following symlinks before 6.6, and
// that of an open folder by the name of its descriptor.
func makeAccessible(dir *os.File, name string) error {
	fd, err := openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	return errors.Join(unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700), unix.Close(fd))
}
