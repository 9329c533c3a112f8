package workspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// maxDepth is how deep folders may be nested, each of which has a descriptor open while it is walked.
const maxDepth = 256

// errDeep says that folders are nested deeper than that.
var errDeep = errors.New("folders are nested too deep")

// Entry is a thing in a workspace. It may have changed since it was seen.
type Entry struct {
	dir  int // the descriptor of its folder
	name string
	stat unix.Stat_t
}

// Sizes of what names are read into. Most folders hold little, and are looked at after each process: what is read of a larger one is
// more at a time.
const (
	fewNames  = 1 << 10
	manyNames = 32 << 10
)

// walker is one walk. It uses bare descriptors: an os.File would cost more than all that is asked of it.
type walker struct {
	visit func(e *Entry) error
	names []byte // what is read of a folder; free again once its names are taken out
}

// walk visits everything below a folder, the folder itself not included. What vanishes meanwhile is passed over.
func walk(dir string, visit func(e *Entry) error) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil // it was taken away
	}
	if err == nil {
		w := walker{visit: visit, names: make([]byte, fewNames)}
		err = w.folder(fd, maxDepth)
	}
	if err != nil {
		return &os.PathError{Op: "walk", Path: dir, Err: err}
	}
	return nil
}

// folder visits what is in a folder, whose descriptor it takes over.
func (w *walker) folder(fd, depth int) (err error) {
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if depth == 0 {
		return errDeep
	}
	var names []string
	for {
		n, err := unix.ReadDirent(fd, w.names)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOENT), err == nil && n <= 0:
			return nil
		case err != nil:
			return err
		}
		_, _, names = unix.ParseDirent(w.names[:n], -1, names[:0])
		if n > len(w.names)/2 && len(w.names) < manyNames {
			w.names = make([]byte, manyNames)
		}
		for _, name := range names {
			if err := w.look(fd, name, depth); err != nil {
				return err
			}
		}
	}
}

func (w *walker) look(dir int, name string, depth int) error {
	e := &Entry{dir: dir, name: name}
	err := unix.Fstatat(dir, name, &e.stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil {
		err = w.visit(e)
	}
	if err == nil && e.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		var sub int
		if sub, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
			return w.folder(sub, depth-1)
		}
	}
	// Removed meanwhile, or replaced by something that is no folder.
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// Usage is what a workspace holds.
type Usage struct {
	// Bytes are the sizes of its files together, Largest is that of the largest.
	Bytes, Largest int64
	// Files are its files, folders and links.
	Files int64
}

// Measure counts what is in a workspace. Errors: unavailable for a folder that cannot be read, or that is nested more than
// 256 deep.
func Measure(dir string) (Usage, error) {
	var u Usage
	err := walk(dir, func(e *Entry) error {
		u.Files++
		if e.stat.Mode&unix.S_IFMT == unix.S_IFREG {
			u.Bytes += e.stat.Size
			u.Largest = max(u.Largest, e.stat.Size)
		}
		return nil
	})
	if err != nil {
		return u, schemas.Errorf(schemas.CodeUnavailable, "the workspace cannot be measured: %w", err)
	}
	return u, nil
}

// Own gives a workspace and all in it to a user, where it is another's. Only root can. Errors: the system's.
func Own(dir string, uid, gid int) error {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	if err == nil && !owned(&st, uid, gid) {
		err = unix.Chown(dir, uid, gid)
	}
	if err != nil {
		return &os.PathError{Op: "own", Path: dir, Err: err}
	}
	return walk(dir, func(e *Entry) error {
		if owned(&e.stat, uid, gid) {
			return nil
		}
		return unix.Fchownat(e.dir, e.name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
}

func owned(st *unix.Stat_t, uid, gid int) bool { return int(st.Uid) == uid && int(st.Gid) == gid }
