package worktree

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
)

// ErrChanged means that a path is not what it was at the scan. It was left as it is.
var ErrChanged = errors.New("changed since the scan")

// Swapper changes paths under a root for what a stage has, and overwrites nothing that has changed since the scan: it exchanges
// the two, and looks at what came out. What it replaces and removes stays in the stage until [Swapper.Settle], for writers that
// had it open. A file system without exchanges gets a check right before a plain rename.
type Swapper struct {
	root  *os.Root
	at    *Folders // of the paths
	in    *Folders // of the stage
	stage *Stage
	out   []swapped
}

// swapped is something in the stage that was at a path.
type swapped struct {
	path, staged string
	was          Stat // right after it was moved
	ours         Stat // of what is at the path in its place; zero for nothing
}

// NewSwapper returns a swapper of paths under root for those of its stage. The caller closes it, before it removes the stage.
func NewSwapper(root *os.Root, stage *Stage) *Swapper {
	return &Swapper{root: root, stage: stage, at: NewFolders(root), in: NewFolders(root)}
}

// Close closes the open folders.
func (s *Swapper) Close() error { return errors.Join(s.at.Close(), s.in.Close()) }

// do runs a system call on the folder of a staged path and that of a path. A folder that its owner may not write to is made writable.
func (s *Swapper) do(staged, at string, call func(from int, old string, to int, name string) error) error {
	return WithWritableParent(s.root, at, func() error {
		if err := s.in.open(state.Parent(staged)); err != nil {
			return err
		}
		if err := s.at.open(state.Parent(at)); err != nil {
			return err
		}
		return call(int(s.in.dir.Fd()), path.Base(staged), int(s.at.dir.Fd()), path.Base(at))
	})
}

// Place renames a staged path to a path that does not exist. Errors: [ErrChanged] when it does.
func (s *Swapper) Place(staged, at string) error {
	err := s.do(staged, at, renameNew)
	if unsupported(err) {
		if _, err = s.at.Stat(at); errors.Is(err, fs.ErrNotExist) {
			err = s.do(staged, at, unix.Renameat)
		} else if err == nil {
			err = fs.ErrExist
		}
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return ErrChanged // something appeared, or the folder is gone
	}
	return swapError(at, err)
}

// Replace puts a staged path in place of a file or symlink. same reports whether that is what it was at the scan.
// Errors: [ErrChanged].
func (s *Swapper) Replace(staged, at string, same func(Stat) bool) error {
	now, err := s.at.Stat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Place(staged, at)
	}
	if err != nil {
		return swapError(at, err)
	}
	if !same(now) {
		return ErrChanged
	}
	ours, err := s.in.Stat(staged)
	if err != nil {
		return swapError(at, err)
	}
	if err = s.do(staged, at, exchange); unsupported(err) {
		return swapError(at, s.do(staged, at, unix.Renameat))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s.Place(staged, at)
	}
	return s.look(at, staged, now, ours, err)
}

// Remove takes a file or symlink away. The errors are those of Replace.
func (s *Swapper) Remove(at string, same func(Stat) bool) error {
	now, err := s.at.Stat(at)
	if err != nil {
		return err
	}
	if !same(now) {
		return ErrChanged
	}
	staged := s.stage.NewPath("")
	err = s.do(staged, at, func(from int, old string, to int, name string) error { return unix.Renameat(to, name, from, old) })
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.look(at, staged, now, Stat{}, err)
}

// RemoveFolder removes an empty folder, and nothing else. Errors: [ErrChanged] where it is no folder.
func (s *Swapper) RemoveFolder(at string) error {
	err := s.do(s.stage.name+"/-", at, func(_ int, _ string, to int, name string) error { return unix.Unlinkat(to, name, unix.AT_REMOVEDIR) })
	if errors.Is(err, unix.ENOTDIR) {
		return ErrChanged
	}
	return err
}

// look puts back what came out of a path where it is not what was there before.
func (s *Swapper) look(at, staged string, before, ours Stat, err error) error {
	if err != nil {
		return swapError(at, err)
	}
	after, err := s.in.Stat(staged)
	if err != nil {
		return swapError(at, err)
	}
	out := swapped{path: at, staged: staged, was: after, ours: ours}
	if !untouched(before, after) {
		return errors.Join(ErrChanged, s.restore(out))
	}
	s.out = append(s.out, out)
	return nil
}

// untouched reports whether a file that was renamed in between has the same content. The rename changes its ctime.
func untouched(before, after Stat) bool {
	return before.Inode == after.Inode && before.Mtime == after.Mtime && before.Size == after.Size
}

// restore puts back what was at a path, unless something newer is there now.
func (s *Swapper) restore(out swapped) error {
	if out.ours == (Stat{}) {
		if err := s.root.MkdirAll(path.Join(".", state.Parent(out.path)), 0o755); err != nil {
			return swapError(out.path, err)
		}
		if err := s.at.Close(); err != nil { // the folder may be another one
			return swapError(out.path, err)
		}
		if err := s.do(out.staged, out.path, renameNew); !errors.Is(err, fs.ErrExist) {
			return swapError(out.path, err)
		}
		return nil
	}
	now, err := s.at.Stat(out.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.Inode != out.ours.Inode {
		return nil // it was removed or replaced since
	}
	if err != nil {
		return swapError(out.path, err)
	}
	if err := s.do(out.staged, out.path, exchange); err != nil {
		return swapError(out.path, err)
	}
	if back, err := s.in.Stat(out.staged); err == nil && back.Inode != out.ours.Inode { // replaced in this moment
		return swapError(out.path, s.do(out.staged, out.path, exchange))
	}
	return nil
}

// Settle puts back what was written to, by a writer that had it open, after it was replaced or removed. It returns the paths.
func (s *Swapper) Settle() (changed []string, err error) {
	for _, out := range s.out {
		now, statErr := s.in.Stat(out.staged)
		if statErr == nil && !untouched(out.was, now) {
			changed, statErr = append(changed, out.path), s.restore(out)
		}
		err = errors.Join(err, statErr)
	}
	s.out = nil
	return changed, swapError("", err)
}

// unsupported reports whether a file system lacks a kind of rename.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP)
}

func swapError(at string, err error) error {
	if err == nil {
		return nil
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: replacing %q: %w", state.Clip(at), err)
}
