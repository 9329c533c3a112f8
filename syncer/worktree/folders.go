package worktree

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Folders reaches paths under a root through the folders that hold them. It keeps the last folder open, since the next path is most
// often in the same one: [os.Root] opens every folder of a path each time, which for a small file is half of the work.
type Folders struct {
	root *os.Root
	dir  *os.File
	path string
}

// NewFolders returns a Folders for paths under root. The caller closes it.
func NewFolders(root *os.Root) *Folders { return &Folders{root: root} }

// Close closes the open folder.
func (d *Folders) Close() error {
	if d.dir == nil {
		return nil
	}
	err := d.dir.Close()
	d.dir = nil
	return err
}

// Stat stats one path without following symlinks.
func (d *Folders) Stat(path string) (Stat, error) {
	fd, name, err := d.enter(path)
	if err != nil {
		return Stat{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Stat{}, err
	}
	return statOf(&st), nil
}

// enter opens the folder of a path, and returns it with the path's last name.
func (d *Folders) enter(path string) (fd int, name string, err error) {
	err = d.open(state.Parent(path))
	if err != nil {
		return 0, "", err
	}
	return int(d.dir.Fd()), path[strings.LastIndexByte(path, '/')+1:], nil
}

// open makes dir the open folder.
func (d *Folders) open(dir string) (err error) {
	if d.dir != nil && d.path == dir {
		return nil
	}
	if err := d.Close(); err != nil {
		return err
	}
	if d.dir, err = d.root.OpenFile(cmp.Or(dir, "."), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
		d.dir = nil // a nil *os.File
		return err
	}
	d.path = dir
	return nil
}

// openFile opens or creates a file, never through a symlink at its path.
func (d *Folders) openFile(path string, flags int, mode uint32) (fd int, err error) {
	dir, name, err := d.enter(path)
	if err != nil {
		return -1, err
	}
	for {
		fd, err = unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// setTime sets the time of a path's last change.
func (d *Folders) setTime(path string, t time.Time) error {
	dir, name, err := d.enter(path)
	if err != nil {
		return err
	}
	times := []unix.Timespec{unix.NsecToTimespec(time.Now().UnixNano()), unix.NsecToTimespec(t.UnixNano())}
	if err := unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "chtimes", Path: path, Err: err}
	}
	return nil
}

// read reads the start of a regular file, as much as into holds. steady reports whether that is all of it, and it did not change meanwhile.
func (d *Folders) read(path string, into []byte) (n int, c Content, steady bool, err error) {
	fd, err := d.openFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, c, false, readError(err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if c.Stat, c.Sparse, err = statRegular(fd, path); err != nil {
		return 0, c, false, err
	}
	c.Open = openForWriting(fd)
	for k := 1; k > 0 && n < len(into); n += k {
		if k, err = readSome(fd, into[n:]); err != nil {
			return n, c, false, schemas.Errorf(schemas.CodeInternal, "reading %q: %w", state.Clip(path), readError(err))
		}
	}
	after, _, err := statRegular(fd, path)
	return n, c, after == c.Stat && int64(n) == after.Size, err
}

func readSome(fd int, into []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, into); !errors.Is(err, unix.EINTR) {
			return max(0, n), err
		}
	}
}
