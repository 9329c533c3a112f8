package workspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// maxDepth is the nesting of folders that a walk accepts: each level keeps a descriptor open.
const maxDepth = 256

// blockBytes is the unit of st_blocks, whatever the file system: stat(2).
const blockBytes = 512

var errDeep = errors.New("folders are nested more than 256 deep")

// entry is a file, folder or link in a workspace. It may have changed since its stat.
type entry struct {
	dir  int // the descriptor of its folder
	name string
	stat unix.Stat_t
}

// Sizes of the buffer for names. Most folders are small, and a walk follows every process; the buffer grows for a large folder.
const (
	smallBuffer = 1 << 10
	largeBuffer = 32 << 10
)

// walker is one walk. It uses bare descriptors: an os.File would cost more than the calls on it.
type walker struct {
	visit    func(e *entry) error
	names    []byte // buffer for ReadDirent; free once the names are parsed
	skipDeep bool   // what is nested deeper than maxDepth is skipped; else it is an error
}

// walk visits everything below a folder, but not the folder itself. It skips what is removed during the walk.
func walk(dir string, skipDeep bool, visit func(e *entry) error) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		w := walker{visit: visit, names: make([]byte, smallBuffer), skipDeep: skipDeep}
		err = w.folder(fd, maxDepth)
	}
	if err != nil {
		return &os.PathError{Op: "walk", Path: dir, Err: err}
	}
	return nil
}

// folder visits the content of a folder, and closes its descriptor.
func (w *walker) folder(fd, depth int) (err error) {
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	switch {
	case depth == 0 && w.skipDeep:
		return nil
	case depth == 0:
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
		if n > len(w.names)/2 && len(w.names) < largeBuffer {
			w.names = make([]byte, largeBuffer)
		}
		for _, name := range names {
			if err := w.entry(fd, name, depth); err != nil {
				return err
			}
		}
	}
}

func (w *walker) entry(dir int, name string, depth int) error {
	e := &entry{dir: dir, name: name}
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
	// Removed during the walk, or replaced by something that is not a folder.
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// Usage is the size of a workspace.
type Usage struct {
	// Bytes is what all files together have, or take on the disk where that is more: blocks can be allocated beyond the end of a file, and
	// small files and folders take whole ones. Largest is the size of the largest file.
	Bytes, Largest int64
	// Files is the number of files, folders and links.
	Files int64
}

// Measure returns the Usage of a workspace; zero when the folder does not exist. Errors: unavailable for a folder that cannot be
// read, or whose folders are nested more than 256 deep.
func Measure(dir string) (Usage, error) {
	var u Usage
	err := walk(dir, false, func(e *entry) error {
		u.Files++
		taken := e.stat.Blocks * blockBytes
		if e.stat.Mode&unix.S_IFMT == unix.S_IFREG {
			taken = max(taken, e.stat.Size)
			u.Largest = max(u.Largest, e.stat.Size)
		}
		u.Bytes += taken
		return nil
	})
	if err != nil {
		return u, schemas.Errorf(schemas.CodeUnavailable, "cannot measure the workspace: %w", err)
	}
	return u, nil
}

// Chown changes the owner of a workspace and of everything in it to a user. What is nested more than 256 deep keeps its owner: a command must
// be able to start there, and to remove it. Only root may call it. Errors: the system's.
func Chown(dir string, uid, gid int) error {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	if err == nil && !owned(&st, uid, gid) {
		err = unix.Chown(dir, uid, gid)
	}
	if err != nil {
		return &os.PathError{Op: "chown", Path: dir, Err: err}
	}
	return walk(dir, true, func(e *entry) error {
		if owned(&e.stat, uid, gid) {
			return nil
		}
		return unix.Fchownat(e.dir, e.name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
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
