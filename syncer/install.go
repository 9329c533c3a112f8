package syncer

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// installer changes the folder as a pull needs it.
type installer struct {
	*changes
	root   *os.Root
	report *Report
	stage  *worktree.Stage
	files  []packed.Target // to fetch into the stage
	moves  []packed.Target // renames out of the stage
	late   []*state.Node   // folders that get their mode after their rename
	kept   []string        // paths that changed since the scan, and stay
}

// install prepares everything in the stage, makes that durable, and then changes the folder.
// base returns what the sides have in common then, once everything has been fetched.
func (o *operation) install(ctx context.Context, s *state.State, c *changes, base func() state.State) (err error) {
	in := &installer{changes: c, root: o.root, report: o.report}
	if in.stage, err = worktree.NewStage(o.root); err != nil {
		return err
	}
	defer func() {
		if o.fetching && (ctx.Err() != nil || errors.Is(err, schemas.ErrUnavailable)) {
			return // the next pull goes on with it
		}
		err = errors.Join(err, in.stage.Remove())
	}()
	folders, err := in.prepare()
	if err != nil {
		return err
	}
	o.fetching = true
	if err := o.fetch(ctx, s, in.files); err != nil {
		return err
	}
	o.fetching = false
	if err := o.resumed.leftovers.Remove(); err != nil {
		return err
	}
	if err := in.setStagedModes(folders); err != nil {
		return err
	}
	// The stage must be durable before any rename can be, so that no name has incomplete content after a crash.
	if err := worktree.SyncFilesystem(o.dir); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: making files durable: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	left := base()
	if err := (recovery{o}).begin(c, in.moves, &left); err != nil {
		return err
	}
	o.report.Changed = true
	if err := in.apply(o.meter("install", nodesOf(in.moves))); err != nil {
		return errors.Join(err, o.journal.keepDone(o.root, o.own))
	}
	return nil
}

// prepare makes the new folders and symlinks in the stage, and collects the files and the moves.
func (in *installer) prepare() (folders []packed.Target, err error) {
	tops := map[string]string{} // new folders and their paths in the stage
	for _, n := range in.write {
		t := packed.Target{Node: n, From: cmp.Or(in.origin[n.Path], n.Path)}
		up, nested := tops[state.Parent(n.Path)]
		if nested {
			t.Path = up + n.Path[len(state.Parent(n.Path)):]
		} else {
			t.Path = in.stage.NewPath(n.Path)
		}
		switch n.Kind {
		case state.Dir:
			if !nested && in.isFolder(n.Path) && !in.swaps(n.Path) {
				in.chmod = append(in.chmod, n) // it exists, but the scan has skipped it as ignored
				continue
			}
			folders = append(folders, t)
			err = in.root.Mkdir(t.Path, 0o700)
			tops[n.Path] = t.Path
		case state.Symlink:
			err = in.root.Symlink(n.Target, t.Path)
		default:
			in.files = append(in.files, t)
		}
		if err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
		if !nested {
			in.moves = append(in.moves, t)
		}
	}
	return folders, nil
}

func (o *operation) fetch(ctx context.Context, s *state.State, targets []packed.Target) (err error) {
	o.report.Downloaded = len(targets)
	targets, err = o.resumed.take(ctx, targets)
	if err != nil {
		return err
	}
	f := &packed.Fetcher{Store: o.cfg.Store, Root: o.root, Parallel: o.cfg.Downloads, Done: o.meter("download", nodesOf(targets))}
	var read int64
	if s.Layout == state.Packed {
		read, err = f.Fetch(ctx, s, targets)
	} else {
		read, err = plain.Fetch(ctx, f, s, targets)
	}
	o.report.BytesRead += read
	return err
}

func nodesOf(targets []packed.Target) []*state.Node {
	nodes := make([]*state.Node, len(targets))
	for i := range targets {
		nodes[i] = targets[i].Node
	}
	return nodes
}

// setStagedModes sets the modes of the staged folders, from the inside out. A folder that is to be renamed and that its
// owner may not write to gets its mode late, after the rename.
func (in *installer) setStagedModes(folders []packed.Target) error {
	moved := make(map[string]bool, len(in.moves))
	for _, m := range in.moves {
		moved[m.Path] = true
	}
	for i := len(folders) - 1; i >= 0; i-- {
		f := folders[i]
		if moved[f.Path] && f.Node.Mode&0o300 != 0o300 {
			in.late = append(in.late, f.Node)
			continue
		}
		if err := in.root.Chmod(f.Path, fs.FileMode(f.Node.Mode)); err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: the mode of %q: %w", state.Clip(f.Node.Path), err)
		}
	}
	return nil
}

func (in *installer) isFolder(path string) bool {
	info, err := in.root.Lstat(path)
	return err == nil && info.IsDir()
}

// apply removes, renames and sets modes. An interruption leaves each path as it was or as it will be, and the next pull
// continues. A path that has changed since the scan stays, and is a conflict.
func (in *installer) apply(done func(files, bytes int64)) (err error) {
	swap := worktree.NewSwapper(in.root, in.stage)
	defer func() { err = errors.Join(err, swap.Close()) }()
	for _, n := range slices.Backward(in.remove) {
		if err := in.keepChanged(n.Path, in.removePath(swap, n)); err != nil {
			return err
		}
	}
	for _, m := range in.moves {
		at := m.Node.Path
		if _, known := in.was[at]; known && !in.swaps(at) {
			err = swap.Replace(m.Path, at, in.unchanged(at))
		} else {
			err = swap.Place(m.Path, at)
		}
		if err := in.keepChanged(at, err); err != nil {
			return err
		}
		done(1, m.Node.Size)
	}
	for _, n := range append(in.chmod, in.late...) {
		if err := in.keepChanged(n.Path, in.setAttributes(n)); err != nil {
			return err
		}
	}
	changed, err := swap.Settle()
	in.kept = append(in.kept, changed...)
	if err != nil || len(in.kept) == 0 {
		return err
	}
	for _, at := range in.kept {
		in.report.Conflicts = append(in.report.Conflicts, Conflict{Path: at, Local: "changed", Remote: "changed"})
	}
	return schemas.Errorf(schemas.CodeConflict, "sync: %s changed in the folder while it was being pulled, the first is %q: "+
		"what you changed is as you left it: sync again", countPaths(len(in.kept)), state.Clip(in.kept[0])).With("path", state.Clip(in.kept[0]))
}

// keepChanged notes a path that was left because it had changed since the scan. It returns other errors.
func (in *installer) keepChanged(at string, err error) error {
	if !errors.Is(err, worktree.ErrChanged) {
		return err
	}
	if !slices.Contains(in.kept, at) {
		in.kept = append(in.kept, at)
	}
	return nil
}

// unchanged returns the test whether a path is what it was at the scan. Its ctime may have changed with another link to the same
// file, so then the content decides.
func (in *installer) unchanged(at string) func(worktree.Stat) bool {
	was := in.was[at]
	return func(now worktree.Stat) bool {
		if now.Inode != was.Inode || now.Mtime != was.Mtime {
			return false
		}
		if now.Ctime == was.Ctime {
			return true
		}
		if was.node.Kind == state.Symlink {
			target, err := in.root.Readlink(at)
			return err == nil && target == was.node.Target
		}
		folders := worktree.NewFolders(in.root)
		defer func() { _ = folders.Close() }() // the read has reported any error
		c, err := worktree.HashFile(folders, at, make([]byte, worktree.SmallFile+1), &worktree.Hasher{})
		read := c.Node(was.node)
		return err == nil && now.Mode == was.Mode && state.SameContent(&read, was.node)
	}
}

// checkUnchanged returns a conflict when the path has changed since the scan.
func (in *installer) checkUnchanged(path string) error {
	now, err := worktree.StatPath(in.root, path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && in.unchanged(path)(now):
		return nil
	case err != nil:
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	case in.was[path].node.Kind == state.Dir && in.isFolder(path):
		return nil // the paths in a folder are checked themselves
	}
	return schemas.Errorf(schemas.CodeConflict, "sync: %q was changed while it was being replaced: sync again", state.Clip(path))
}

// check returns a conflict when a path to change has changed since the scan, or something has appeared at a new one.
func (in *installer) check() (err error) {
	for path := range in.was {
		if err := in.checkUnchanged(path); err != nil {
			return err
		}
	}
	folders := worktree.NewFolders(in.root)
	defer func() { err = errors.Join(err, folders.Close()) }()
	for _, m := range in.moves {
		if _, known := in.was[m.Node.Path]; known {
			continue
		}
		switch _, err := folders.Stat(m.Node.Path); {
		case err == nil:
			return schemas.Errorf(schemas.CodeConflict, "sync: %q appeared while it was being pulled: sync again", state.Clip(m.Node.Path))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		default:
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
	}
	return nil
}

func (in *installer) removePath(swap *worktree.Swapper, n *state.Node) (err error) {
	if n.Kind == state.Dir {
		err = swap.RemoveFolder(n.Path)
	} else {
		err = swap.Remove(n.Path, in.unchanged(n.Path))
	}
	switch {
	case err == nil:
		in.report.Deleted++
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case n.Kind == state.Dir && (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)):
		if in.swaps(n.Path) {
			return schemas.Errorf(schemas.CodeConflict,
				"sync: a file cannot replace the folder %q, which holds ignored or new files: move them and sync again",
				state.Clip(n.Path))
		}
		return nil // it keeps its ignored files
	case errors.Is(err, worktree.ErrChanged):
		return err
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
}

func (in *installer) setAttributes(n *state.Node) error {
	f, err := in.root.OpenFile(n.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		err = in.root.Chmod(n.Path, fs.FileMode(n.Mode)) // its present mode forbids opening it
	} else if err == nil {
		now, statErr := worktree.StatFile(f)
		if _, known := in.was[n.Path]; known && statErr == nil && !in.unchanged(n.Path)(now) {
			return errors.Join(worktree.ErrChanged, f.Close())
		}
		err = errors.Join(statErr, f.Chmod(fs.FileMode(n.Mode)), f.Close())
	}
	if err == nil && n.Kind == state.File {
		err = in.root.Chtimes(n.Path, time.Time{}, n.ModTime())
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: the mode and time of %q: %w", state.Clip(n.Path), err)
	}
	return nil
}
