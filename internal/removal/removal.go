package removal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// namesAtOnce is how many names of a folder are in memory.
const namesAtOnce = 1024

// rounds bounds how often a folder is emptied to which another process adds files meanwhile.
const rounds = 100

// All removes a file, or a folder with all that is in it. It is no error when there is none.
//
// Any depth takes the same few descriptors and little memory: a folder in a folder is moved to the top of the tree before it is
// emptied. What the user may not read or change, but owns, is made so. No symlink is followed, whatever another process puts at a
// path meanwhile. A tree that could not be removed is left in part, and its folders may have moved.
func All(root *os.Root, name string) (err error) {
	parent, err := root.OpenFile(filepath.Dir(name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	base := filepath.Base(name)
	for range rounds {
		if err = removeFrom(parent, base); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("removing %q: %w", name, err)
	}
	return nil
}

// Path is [All] for a path of the file system, whose parent is trusted.
func Path(path string) (err error) {
	root, err := os.OpenRoot(filepath.Dir(filepath.Clean(path)))
	if err != nil {
		return ignoreMissing(err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return All(root, filepath.Base(path))
}

// removeFrom removes one name of a folder.
func removeFrom(parent *os.File, name string) (err error) {
	if done, err := unlink(parent, name); done {
		return err
	}
	top, err := openFolder(parent, name)
	if err != nil {
		return ignoreMissing(err)
	}
	t := &tree{top: top, prefix: ".removing-" + rand.Text()}
	err = errors.Join(t.empty(top), top.Close())
	if err == nil {
		err = ignoreMissing(unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR))
	}
	return err
}

// tree is a tree that is being removed.
type tree struct {
	top    *os.File
	prefix string // of the names that moved folders get
	moved  int
}

// empty removes everything in a folder, or moves it to the top.
func (t *tree) empty(dir *os.File) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(namesAtOnce)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			if err := t.remove(dir, name); err != nil {
				return err
			}
		}
	}
}

func (t *tree) remove(dir *os.File, name string) error {
	if done, err := unlink(dir, name); done {
		return err
	}
	below, err := openFolder(dir, name)
	if err != nil {
		return ignoreMissing(err)
	}
	if dir != t.top {
		t.moved++
		err = unix.Renameat(int(dir.Fd()), name, int(t.top.Fd()), t.prefix+strconv.Itoa(t.moved))
	} else if err = t.empty(below); err == nil {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	return errors.Join(ignoreMissing(err), below.Close())
}

// unlink removes a name that is no folder, or an empty one. done is false for a folder that has something in it.
func unlink(dir *os.File, name string) (done bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) { // EPERM is that of a folder outside of Linux
		return true, ignoreMissing(err)
	}
	switch empty := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); {
	case empty == nil, errors.Is(empty, unix.ENOENT):
		return true, nil
	case errors.Is(empty, unix.ENOTDIR):
		return true, err
	case errors.Is(empty, unix.ENOTEMPTY), errors.Is(empty, unix.EEXIST):
		return false, nil
	default:
		return true, empty
	}
}

// openFolder opens a folder that its owner may then list and change.
func openFolder(dir *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := openat(dir, name, flags)
	if errors.Is(err, unix.EACCES) {
		if err := makeAccessible(dir, name); err != nil {
			return nil, err
		}
		fd, err = openat(dir, name, flags)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&0o700 != 0o700 {
		err = unix.Fchmod(fd, 0o700)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

func openat(dir *os.File, name string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(int(dir.Fd()), name, flags, 0); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
