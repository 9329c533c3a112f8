package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/schemas"
)

// maxOpen is how many levels of folders a walk keeps a descriptor of. Deeper levels share one; see walker.deep.
const maxOpen = 256

// blockBytes is the unit of st_blocks, whatever the file system: stat(2).
const blockBytes = 512

// entry is a file, folder or link in a workspace. It may have changed since its stat.
type entry struct {
	dir  int // the descriptor of its folder
	name string
	stat unix.Stat_t // zero when the folder permits to read its names and nothing else
}

// Sizes of the buffer for names. Most folders are small, and a walk follows every process; the buffer grows for a large folder.
const (
	smallBuffer = 1 << 10
	largeBuffer = 32 << 10
)

// walker is one walk. It uses bare descriptors: an os.File would cost more than the calls on it.
type walker struct {
	visit  func(e *entry) error
	names  []byte   // buffer for ReadDirent; free once the names are parsed
	path   []string // names of the folders that lead to the current one
	missed error    // the first reason for which the walk left something out
	below  []string // folders in the current one, where that has no descriptor to keep
	held   int      // bytes in memory for folders that are nested deeper than maxOpen
}

// walk visits everything below a folder, but not the folder itself. It skips what is removed during the walk. It goes on past what it
// cannot read, and missed is the first reason for that, with a path relative to the folder. err is an error of visit, or that no
// file can be opened at all.
func walk(dir string, visit func(e *entry) error) (missed, err error) {
	w := walker{visit: visit, names: make([]byte, smallBuffer)}
	fd, err := unix.Open(dir, openFolder, 0)
	if err == nil {
		err = w.folder(fd, maxOpen)
	} else {
		err = w.miss(err)
	}
	return w.missed, err
}

const openFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// folder visits the content of a folder, and closes its descriptor. It keeps levels more descriptors open at a time, and a few.
func (w *walker) folder(fd, levels int) (err error) {
	if levels == 0 {
		return w.deep(fd)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	return w.read(fd, levels)
}

// read visits the content of a folder. With no levels it leaves the folders in it in below, and does not visit their content.
func (w *walker) read(fd, levels int) error {
	var names []string
	for {
		n, err := unix.ReadDirent(fd, w.names)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOENT), err == nil && n <= 0:
			return nil
		case err != nil:
			return w.miss(err)
		}
		_, _, names = unix.ParseDirent(w.names[:n], -1, names[:0])
		if n > len(w.names)/2 && len(w.names) < largeBuffer {
			w.names = make([]byte, largeBuffer)
		}
		for _, name := range names {
			if err := w.entry(fd, name, levels); err != nil {
				return err
			}
		}
	}
}

func (w *walker) entry(dir int, name string, levels int) error {
	e := &entry{dir: dir, name: name}
	err := unix.Fstatat(dir, name, &e.stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == nil:
	case removed(err):
		return nil
	default: // it has a name, so it counts
		if err = w.miss(err); err != nil {
			return err
		}
	}
	if err := w.visit(e); err != nil {
		if removed(err) {
			return nil
		}
		return err
	}
	switch {
	case e.stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil
	case levels == 0:
		return w.later(name)
	}
	w.path = append(w.path, name)
	sub, err := unix.Openat(dir, name, openFolder|unix.O_NOFOLLOW, 0)
	if err == nil {
		err = w.folder(sub, levels-1)
	} else {
		err = w.miss(err)
	}
	w.path = w.path[:len(w.path)-1]
	return err
}

// removed reports whether an entry was removed during the walk, or replaced by something that is not a folder.
func removed(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// miss records that something in the current folder is left out. It returns an error that ends the walk.
func (w *walker) miss(err error) error {
	switch {
	case removed(err):
	case shortage.Of(err):
		return err
	case w.missed == nil && errors.Is(err, fs.ErrPermission):
		w.missed = fmt.Errorf("the mode of the folder %q denies the worker access: run chmod u+rwx on it, or remove it: %w", w.where(), err)
	case w.missed == nil:
		w.missed = fmt.Errorf("folder %q: %w", w.where(), err)
	}
	return nil
}

// maxWhere bounds a path in a message, in bytes.
const maxWhere = 200

// where is the path of the current folder in the workspace, or the beginning of it.
func (w *walker) where() string {
	if len(w.path) == 0 {
		return "."
	}
	path := w.path[0]
	for _, name := range w.path[1:] {
		if len(path)+1+len(name) > maxWhere {
			return path + "/..."
		}
		path += "/" + name
	}
	return path
}

// Usage is the size of a workspace.
type Usage struct {
	// Bytes is what all files together have, or take on the disk where that is more: blocks can be allocated beyond the end of a file, and
	// small files and folders take whole ones. Largest is the size of the largest file.
	Bytes, Largest int64
	// Files is the number of files, folders and links.
	Files int64
}

// maxTries is how often a workspace is measured whose deep folders are moved meanwhile.
const maxTries = 3

// Measure returns the Usage of a workspace; zero when the folder does not exist. Errors: unavailable when something could not be measured,
// such as a folder whose mode denies it; the Usage is then that of all the rest.
func Measure(dir string) (Usage, error) {
	for try := 1; ; try++ {
		u, missed, err := measure(dir)
		switch {
		case err == nil && errors.Is(missed, errMoved) && try < maxTries:
			continue
		case err == nil:
			err = missed
		}
		if err != nil {
			err = schemas.Errorf(schemas.CodeUnavailable, "cannot measure the workspace: %w", err)
		}
		return u, err
	}
}

func measure(dir string) (u Usage, missed, err error) {
	missed, err = walk(dir, func(e *entry) error {
		u.Files++
		taken := e.stat.Blocks * blockBytes
		if e.stat.Mode&unix.S_IFMT == unix.S_IFREG {
			taken = max(taken, e.stat.Size)
			u.Largest = max(u.Largest, e.stat.Size)
		}
		u.Bytes += taken
		return nil
	})
	return u, missed, err
}

// Chown changes the owner of a workspace and of everything in it to a user. What is nested too deep to be walked, or is moved meanwhile at
// a depth of more than 256 folders, keeps its owner: a command must be able to start there, and to remove it. Only root may call it. Errors:
// the system's.
func Chown(dir string, uid, gid int) error {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	if err == nil && !owned(&st, uid, gid) {
		err = unix.Chown(dir, uid, gid)
	}
	if err == nil {
		var missed error
		missed, err = walk(dir, func(e *entry) error {
			if owned(&e.stat, uid, gid) {
				return nil
			}
			return unix.Fchownat(e.dir, e.name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
		})
		if err == nil && !errors.Is(missed, errDeep) && !errors.Is(missed, errMoved) {
			err = missed
		}
	}
	if err != nil {
		return &os.PathError{Op: "chown", Path: dir, Err: err}
	}
	return nil
}

// Owner is the user id that owns a workspace's folder; 0 when there is none.
func Owner(dir string) int {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return 0
	}
	return int(st.Uid)
}

func owned(st *unix.Stat_t, uid, gid int) bool { return int(st.Uid) == uid && int(st.Gid) == gid }
