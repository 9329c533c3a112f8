package workspace

import (
	"errors"

	"golang.org/x/sys/unix"
)

// maxHeld bounds the memory and time for folders that are nested deeper than maxOpen, in bytes: 8 MiB, which is a chain of 100,000 folders.
const maxHeld = 8 << 20

// What one level, and one name in it, takes in memory: about that.
const (
	levelBytes = 64
	nameBytes  = 16
)

var (
	errDeep  = errors.New("folders are nested too deep to be measured: remove them")
	errMoved = errors.New("folders that are nested more than 256 deep are moved while they are measured")
)

// inode is that of a folder, which no other of the machine has.
type inode struct{ device, number uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} } //nolint:unconvert // the type differs by system

// level is a folder on the way to the current one.
type level struct {
	inode
	below []string // the folders in it that are still to be visited
	held  int      // bytes in memory for it and its name
}

// deep visits the content of a folder at any depth, with one descriptor, and closes that. It returns from a folder by its "..", and checks
// that this is where it came from: the folder may have been moved.
func (w *walker) deep(fd int) (err error) {
	depth := len(w.path)
	var st unix.Stat_t
	var levels []level
	defer func() {
		for _, l := range levels {
			w.release(l)
		}
		w.path = w.path[:depth]
		err = errors.Join(err, unix.Close(fd))
	}()
	if err := unix.Fstat(fd, &st); err != nil {
		return w.miss(err)
	}
	below, err := w.readDeep(fd)
	levels = append(levels, level{inodeOf(&st), below, levelBytes})
	w.held += levelBytes
	for err == nil {
		top := &levels[len(levels)-1]
		if len(top.below) == 0 {
			w.release(*top)
			if levels = levels[:len(levels)-1]; len(levels) == 0 {
				return nil
			}
			w.path = w.path[:len(w.path)-1]
			up, ok := parent(fd, levels[len(levels)-1].inode)
			if !ok {
				return w.miss(errMoved)
			}
			err = unix.Close(fd)
			fd = up
			continue
		}
		name := top.below[len(top.below)-1]
		top.below = top.below[:len(top.below)-1]
		var next *level
		w.path = append(w.path, name)
		if fd, next, err = w.descend(fd, name, top.inode); next == nil {
			w.path = w.path[:len(w.path)-1]
			w.held -= len(name) + nameBytes
			continue
		}
		levels = append(levels, *next)
	}
	return err
}

// descend visits the content of a folder in the one of fd. It closes fd and returns the folder's descriptor in its place, with its level; with
// no level it returns fd, because there is nothing below.
func (w *walker) descend(fd int, name string, from inode) (int, *level, error) {
	sub, err := unix.Openat(fd, name, openFolder|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fd, nil, w.miss(err)
	}
	var st, up unix.Stat_t
	below, err := w.readDeep(sub)
	if err == nil && len(below) > 0 {
		w.held += levelBytes
		next := &level{below: below, held: levelBytes + nameBytes + len(name)}
		lost := errors.Join(unix.Fstat(sub, &st), unix.Fstatat(sub, "..", &up, unix.AT_SYMLINK_NOFOLLOW))
		if lost == nil && inodeOf(&up) == from {
			next.inode = inodeOf(&st)
			return sub, next, unix.Close(fd)
		}
		// Without a way back it stays above.
		w.release(level{below: below, held: levelBytes})
		if lost == nil {
			lost = errMoved
		}
		err = w.miss(lost)
	}
	return fd, nil, errors.Join(err, unix.Close(sub))
}

// parent opens the folder of a folder, if it is the one that is wanted.
func parent(fd int, want inode) (int, bool) {
	up, err := unix.Openat(fd, "..", openFolder, 0)
	if err != nil {
		return -1, false
	}
	var st unix.Stat_t
	if unix.Fstat(up, &st) != nil || inodeOf(&st) != want {
		_ = unix.Close(up)
		return -1, false
	}
	return up, true
}

// readDeep visits the content of a folder, and returns the folders in it.
func (w *walker) readDeep(fd int) ([]string, error) {
	w.below = nil
	err := w.read(fd, 0)
	return w.below, err
}

// later keeps the name of a folder whose content is visited once its own folder has been read.
func (w *walker) later(name string) error {
	if w.held+levelBytes+nameBytes+len(name) > maxHeld {
		return w.miss(errDeep)
	}
	w.held += len(name) + nameBytes
	w.below = append(w.below, name)
	return nil
}

// release gives the memory of a level back.
func (w *walker) release(l level) {
	for _, name := range l.below {
		w.held -= len(name) + nameBytes
	}
	w.held -= l.held
}
