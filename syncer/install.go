package syncer

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// move is one rename out of the stage.
type move struct {
	from string
	node *state.Node
}

// install prepares everything in the stage, makes that durable, and then changes the folder.
func (o *operation) install(ctx context.Context, s *state.State, c *changes) (err error) {
	stage, err := worktree.NewStage(o.root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Remove()) }()
	var moves []move
	var targets, folders []packed.Target
	tops := map[string]string{} // new folders and their paths in the stage
	for _, n := range c.write {
		var staged string
		up, nested := tops[state.Parent(n.Path)]
		if nested {
			staged = up + n.Path[len(state.Parent(n.Path)):]
		} else {
			staged = stage.NewPath()
		}
		switch n.Kind {
		case state.Dir:
			if !nested && o.isFolder(n.Path) && !c.swaps(n.Path) {
				c.chmod = append(c.chmod, n) // it exists, but the scan has skipped it as ignored
				continue
			}
			folders = append(folders, packed.Target{Node: n, Path: staged})
			err = o.root.Mkdir(staged, 0o700)
			tops[n.Path] = staged
		case state.Symlink:
			err = o.root.Symlink(n.Target, staged)
		default:
			from := n.Path
			if other, ok := c.origin[n.Path]; ok {
				from = other
			}
			targets = append(targets, packed.Target{Node: n, Path: staged, From: from})
		}
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		if !nested {
			moves = append(moves, move{staged, n})
		}
	}
	o.fetching = true
	if err := o.fetch(ctx, s, targets); err != nil {
		return err
	}
	o.fetching = false
	late, err := o.setStagedModes(folders, moves)
	if err != nil {
		return err
	}
	// The stage must be durable before any rename can be, so that no name has incomplete content after a crash.
	if err := worktree.SyncFilesystem(o.dir); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: making files durable: %w", err)
	}
	return o.changeFolder(ctx, c, moves, late)
}

func (o *operation) fetch(ctx context.Context, s *state.State, targets []packed.Target) (err error) {
	files := make([]*state.Node, len(targets))
	for i := range targets {
		files[i] = targets[i].Node
	}
	o.report.Downloaded = len(targets)
	f := &packed.Fetcher{Store: o.cfg.Store, Root: o.root, Parallel: o.cfg.Downloads, Done: o.meter("download", files)}
	var read int64
	if s.Layout == state.Packed {
		read, err = f.Fetch(ctx, s, targets)
	} else {
		read, err = plain.Fetch(ctx, f, s, targets)
	}
	o.report.BytesRead += read
	return err
}

// setStagedModes sets the modes of the staged folders, from the inside out. A folder that is to be renamed and that its
// owner may not write to gets its mode late, after the rename.
func (o *operation) setStagedModes(folders []packed.Target, moves []move) (late []*state.Node, err error) {
	moved := make(map[string]bool, len(moves))
	for _, m := range moves {
		moved[m.from] = true
	}
	for i := len(folders) - 1; i >= 0; i-- {
		f := folders[i]
		if moved[f.Path] && f.Node.Mode&0o300 != 0o300 {
			late = append(late, f.Node)
			continue
		}
		if err := o.root.Chmod(f.Path, fs.FileMode(f.Node.Mode)); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: the mode of %q: %w", state.Clip(f.Node.Path), err)
		}
	}
	return late, nil
}

func (o *operation) isFolder(path string) bool {
	info, err := o.root.Lstat(path)
	return err == nil && info.IsDir()
}

// changeFolder removes, renames and sets modes. An interruption leaves each path as it was or as it will be, and the next
// pull continues.
func (o *operation) changeFolder(ctx context.Context, c *changes, moves []move, late []*state.Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for path, was := range c.was {
		if err := o.checkUnchanged(path, was); err != nil {
			return err
		}
	}
	if err := o.checkFree(c, moves); err != nil {
		return err
	}
	if err := o.writeJournal(c.swapped); err != nil {
		return err
	}
	for i := len(c.remove) - 1; i >= 0; i-- {
		if err := o.removePath(c, c.remove[i]); err != nil {
			return err
		}
	}
	for _, m := range moves {
		err := worktree.WithWritableParent(o.root, m.node.Path, func() error { return o.root.Rename(m.from, m.node.Path) })
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %q: %w", state.Clip(m.node.Path), err)
		}
	}
	for _, n := range append(c.chmod, late...) {
		if err := o.setMode(n); err != nil {
			return err
		}
	}
	return nil
}

// checkUnchanged returns a conflict when the path has changed since the scan.
func (o *operation) checkUnchanged(path string, was worktree.Stat) error {
	now, err := worktree.StatPath(o.root, path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && now.Inode == was.Inode && now.Mtime == was.Mtime && now.Ctime == was.Ctime:
		return nil
	case err != nil:
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	case was.Size == 0 && o.isFolder(path):
		return nil // the paths in a folder are checked themselves
	}
	return schemas.Errorf(schemas.CodeConflict, "sync: %q was changed while it was being replaced: sync again", state.Clip(path))
}

// checkFree returns a conflict when something has appeared at a new path since the scan.
func (o *operation) checkFree(c *changes, moves []move) (err error) {
	stater := worktree.NewStater(o.root)
	defer func() { err = errors.Join(err, stater.Close()) }()
	for _, m := range moves {
		if _, known := c.was[m.node.Path]; known {
			continue
		}
		switch _, err := stater.Stat(m.node.Path); {
		case err == nil:
			return schemas.Errorf(schemas.CodeConflict, "sync: %q appeared while it was being pulled: sync again", state.Clip(m.node.Path))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		default:
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
	}
	return nil
}

func (o *operation) removePath(c *changes, n *state.Node) error {
	err := worktree.WithWritableParent(o.root, n.Path, func() error { return o.root.Remove(n.Path) })
	switch {
	case err == nil:
		o.report.Deleted++
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case n.Kind == state.Dir && (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)):
		if c.swaps(n.Path) {
			return schemas.Errorf(schemas.CodeConflict,
				"sync: a file cannot replace the folder %q, which holds ignored or new files: move them and sync again",
				state.Clip(n.Path))
		}
		return nil // it keeps its ignored files
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
}

func (o *operation) setMode(n *state.Node) error {
	f, err := o.root.OpenFile(n.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		err = o.root.Chmod(n.Path, fs.FileMode(n.Mode)) // its present mode forbids opening it
	} else if err == nil {
		err = errors.Join(f.Chmod(fs.FileMode(n.Mode)), f.Close())
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: the mode of %q: %w", state.Clip(n.Path), err)
	}
	return nil
}
