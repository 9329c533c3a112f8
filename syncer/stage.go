package syncer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// stage is the folder inside the root in which a pull puts together what it is about to publish. It is on the same
// file system, so that publishing is renaming, and its name is Sluice's own, so that no sync carries it and the next
// one removes it after a crash.
type stage struct {
	root *os.Root
	name string
	next int
}

func newStage(root *os.Root) (*stage, error) {
	s := &stage{root: root, name: tempName()}
	if err := root.Mkdir(s.name, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return s, nil
}

// place is a new name in the stage.
func (s *stage) place() string {
	s.next++
	return s.name + "/" + strconv.Itoa(s.next)
}

func (s *stage) remove() error {
	if err := removeTree(s.root, s.name); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return nil
}

// removeTree removes a tree of which some folders may be closed to their own owner.
func removeTree(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err = fs.WalkDir(root.FS(), name, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = root.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, root.RemoveAll(name))
}

// unlocked runs a change of what is in path's folder, for which it opens a folder that is closed to its own owner.
func unlocked(root *os.Root, path string, change func() error) error {
	err := change()
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	dir := parent(path)
	if dir == "" {
		return err
	}
	info, statErr := root.Lstat(dir)
	if statErr != nil || !info.IsDir() || root.Chmod(dir, info.Mode().Perm()|0o700) != nil {
		return err
	}
	return errors.Join(change(), root.Chmod(dir, info.Mode().Perm()))
}

// folder is one open folder of the stage, kept by a writer for the next file, which is most often in the same one.
type folder struct {
	root *os.Root
	path string
	open *os.Root
}

// in is the folder a path is in, and the path's last name.
func (d *folder) in(path string) (*os.Root, string, error) {
	dir := parent(path)
	if d.open == nil || d.path != dir {
		if err := d.close(); err != nil {
			return nil, "", err
		}
		open, err := d.root.OpenRoot(dir)
		if err != nil {
			return nil, "", schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		d.open, d.path = open, dir
	}
	return d.open, path[len(dir)+1:], nil
}

func (d *folder) close() error {
	if d.open == nil {
		return nil
	}
	err := d.open.Close()
	d.open = nil
	return err
}

// writeError is the error for a file that could not be written: limit_exceeded where the disk is full.
func writeError(path string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return schemas.Errorf(schemas.CodeLimitExceeded,
			"sync: no room for %q: make some and sync again: %w", clip(path), err).With("path", clip(path))
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: writing %q: %w", clip(path), err)
}

// writeSmall makes a file of the stage from content that has been verified.
func (d *folder) writeSmall(path string, n *Node, data []byte) error {
	dir, name, err := d.in(path)
	if err != nil {
		return err
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	if n.Sparse {
		err = errors.Join(f.Truncate(n.Size), writeSparse(f, data, 0))
	} else if len(data) > 0 {
		_, err = f.Write(data)
	}
	err = errors.Join(err, f.Chmod(fs.FileMode(n.Mode)), f.Close())
	if err == nil {
		err = dir.Chtimes(name, time.Time{}, n.ModTime())
	}
	if err != nil {
		return writeError(n.Path, joined(err))
	}
	return nil
}

// writeSparse leaves out the blocks that are all zeros. The file has its full size already.
func writeSparse(f *os.File, data []byte, offset int64) error {
	for len(data) > 0 {
		block := data[:min(sparseBlock, len(data))]
		if !allZero(block) {
			if _, err := f.WriteAt(block, offset); err != nil {
				return err
			}
		}
		offset += int64(len(block))
		data = data[len(block):]
	}
	return nil
}

func allZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[:len(b)-1], b[1:])
}

// largeFile is a file of the stage that several downloads write to.
type largeFile struct {
	node *Node
	path string
	f    *os.File
	left atomic.Int32 // chunks to come
	// turn has one write at a time: the kernel would have the others wait for the inode too, but spinning.
	turn sync.Mutex
}

func (d *folder) openLarge(path string, n *Node, chunks int) (*largeFile, error) {
	dir, name, err := d.in(path)
	if err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	if err := f.Truncate(n.Size); err != nil {
		return nil, errors.Join(schemas.Errorf(schemas.CodeLimitExceeded, "sync: no room for %q: %w", clip(n.Path), err), f.Close())
	}
	l := &largeFile{node: n, path: path, f: f}
	l.left.Store(int32(chunks))
	return l, nil
}

func (l *largeFile) write(data []byte, offset int64) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	var err error
	if l.node.Sparse {
		err = writeSparse(l.f, data, offset)
	} else {
		_, err = l.f.WriteAt(data, offset)
	}
	if err != nil {
		return writeError(l.node.Path, err)
	}
	return nil
}

// done counts a chunk, and finishes the file with the last one.
func (l *largeFile) done(d *folder) (finished bool, err error) {
	if l.left.Add(-1) > 0 {
		return false, nil
	}
	return true, l.finish(d)
}

func (l *largeFile) finish(d *folder) error {
	err := errors.Join(l.f.Chmod(fs.FileMode(l.node.Mode)), l.f.Close())
	if err == nil {
		var dir *os.Root
		var name string
		if dir, name, err = d.in(l.path); err == nil {
			err = dir.Chtimes(name, time.Time{}, l.node.ModTime())
		}
	}
	if err != nil {
		return writeError(l.node.Path, joined(err))
	}
	return nil
}
