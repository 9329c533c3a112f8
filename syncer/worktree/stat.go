package worktree

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/syncer/state"
)

// Stat is what the file system reports of a file. A file whose Stat changed is taken as changed.
type Stat struct {
	Size  int64
	Mtime int64 // nanoseconds since 1970
	Ctime int64
	Inode uint64
	Mode  uint16
}

func statOf(st *unix.Stat_t) Stat {
	return Stat{Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), Inode: st.Ino, Mode: uint16(st.Mode & 0o777)}
}

func isSparse(st *unix.Stat_t) bool { return st.Blocks*512 < st.Size && st.Size >= sparseBlock }

// TryLock locks a folder for as long as dir is open, between processes too. It fails with EWOULDBLOCK when the folder is
// locked. The lock is on the folder itself: it leaves no file behind and ends with the process.
func TryLock(dir *os.File) error {
	return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Stater stats paths without following symlinks. It keeps the last folder open, since the next path is most often in
// the same one.
type Stater struct {
	root *os.Root
	dir  *os.File
	path string
}

// NewStater returns a Stater for paths under root. The caller closes it.
func NewStater(root *os.Root) *Stater { return &Stater{root: root} }

// Close closes the open folder.
func (s *Stater) Close() error {
	if s.dir == nil {
		return nil
	}
	err := s.dir.Close()
	s.dir = nil
	return err
}

// Stat stats one path.
func (s *Stater) Stat(path string) (Stat, error) {
	dir, name := state.Parent(path), path[strings.LastIndexByte(path, '/')+1:]
	if s.dir == nil || s.path != dir {
		err := s.Close()
		if err != nil {
			return Stat{}, err
		}
		if s.dir, err = s.root.OpenFile(cmp.Or(dir, "."), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
			return Stat{}, err
		}
		s.path = dir
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(s.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Stat{}, err
	}
	return statOf(&st), nil
}

// StatPath stats one path under root without following symlinks.
func StatPath(root *os.Root, path string) (st Stat, err error) {
	s := NewStater(root)
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Stat(path)
}
