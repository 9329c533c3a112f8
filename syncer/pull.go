package syncer

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/schemas"
)

// Pull brings into the folder what the store has that the folder does not have yet. What was changed in the folder
// since the last sync stays. Nothing in the store changes.
//
// Errors: those of [Syncer.Push], and not_found when content that the state names is gone. The report is never nil.
func (s *Syncer) Pull(ctx context.Context) (*Report, error) {
	return s.operate(func(x *session) error { return x.pull(ctx) })
}

func (x *session) pull(ctx context.Context) error {
	l, err := x.scan(ctx)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		was, err := x.remote(ctx)
		if err != nil {
			return err
		}
		err = x.pullFrom(ctx, l, was)
		if !x.fetching || err == nil || try == fetchTries || !x.overtaken(ctx, was, err) {
			return err
		}
	}
}

// fetchTries is how often a pull starts again from the read because pushes have replaced what it was fetching.
const fetchTries = 5

// overtaken says whether a fetch has failed because the store's state is another one by now. The folder is as it was:
// nothing is published before everything has been fetched.
func (x *session) overtaken(ctx context.Context, was *snapshot, err error) bool {
	if !errors.Is(err, schemas.ErrConflict) && !errors.Is(err, schemas.ErrNotFound) {
		return false
	}
	info, err := x.store.Stat(ctx, stateKey)
	return err == nil && info.Token != was.token
}

// pullFrom brings the folder to what was says.
func (x *session) pullFrom(ctx context.Context, l *local, was *snapshot) error {
	x.fetching = false
	steps, err := x.decided(ctx, l, was.state, TakeRemote)
	if err != nil {
		return err
	}
	if err := x.conflicts(steps); err != nil {
		return err
	}
	changes := newChanges(l, steps, was.state.ID)
	x.report.Version = was.state.ID
	if was.token == "" && len(was.state.Nodes) == 0 {
		x.note("there is nothing at " + x.cfg.Remote + " yet")
	}
	if changes.empty() {
		if err := x.remember(l, was.state, was.token, steps, pulledBase); err != nil {
			return err
		}
		return x.forget()
	}
	if err := x.apply(ctx, was.state, changes); err != nil {
		return err
	}
	x.report.Changed = true
	if err := x.refresh(l, changes); err != nil {
		return err
	}
	x.cfg.Progress(Progress{Phase: "commit"})
	x.indexed = false // the scan is another one now
	if err := x.remember(l, was.state, was.token, steps, pulledBase); err != nil {
		return err
	}
	if err := x.dir.Sync(); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	return x.forget()
}

// pulledBase is what both sides have in common after a pull: all that the store has, but for what is left alone.
func pulledBase(steps []Step, now []Node) (base []Node, whole bool) {
	base = make([]Node, 0, len(now))
	whole = true
	for i := range steps {
		s := &steps[i]
		n := s.Remote
		if s.Do == Leave {
			whole = whole && s.Base == s.Remote
			n = s.Base
		}
		if n != nil {
			base = append(base, *n)
		}
	}
	return base, whole
}

// changes is what a pull does to the folder, taken from a plan.
type changes struct {
	write   []*Node // new and replaced paths, in the order of a walk
	chmod   []*Node // paths of which only the mode is another one
	remove  []*Node // paths that go, as they were when the folder was scanned
	swapped []*Node // of those, the ones that another kind of thing takes the place of
	was     map[string]stat
	origin  map[string]string // for a path beside another: the other
}

func newChanges(l *local, steps []Step, version string) *changes {
	c := &changes{was: map[string]stat{}, origin: map[string]string{}}
	at := 0
	for i := range steps {
		s := &steps[i]
		var st stat
		if s.Local != nil {
			st = l.stats[at]
			at++
		}
		if s.Do == KeepBoth {
			copied := *s.Remote
			copied.Path = besideName(copied.Path, version)
			c.write = append(c.write, &copied)
			c.origin[copied.Path] = s.Remote.Path
			continue
		}
		if s.Do != TakeRemote {
			continue
		}
		switch l, r := s.Local, s.Remote; {
		case r == nil:
			c.remove = append(c.remove, l)
			c.was[l.Path] = st
		case l == nil:
			c.write = append(c.write, r)
		case l.Kind == r.Kind && sameContent(l, r):
			c.chmod = append(c.chmod, r)
		case l.Kind == Dir || r.Kind == Dir:
			c.remove, c.swapped = append(c.remove, l), append(c.swapped, l)
			c.write = append(c.write, r)
			c.was[l.Path] = st
		default:
			c.write = append(c.write, r)
			c.was[l.Path] = st
		}
	}
	return c
}

func (c *changes) empty() bool { return len(c.write)+len(c.chmod)+len(c.remove) == 0 }

// move is one rename out of the stage.
type move struct {
	from string
	node *Node
}

// apply makes everything ready in the stage first, makes that durable, and then changes the folder.
func (x *session) apply(ctx context.Context, s *State, c *changes) (err error) {
	st, err := newStage(x.root)
	if err != nil {
		return err
	}
	defer func() { err = joined(errors.Join(err, st.remove())) }()
	var moves []move
	var targets []target
	var folders []target
	tops := map[string]string{} // new folders and where in the stage they are
	var files []*Node
	for _, n := range c.write {
		var staged string
		nested := false
		if up, ok := tops[parent(n.Path)]; ok {
			staged, nested = up+n.Path[len(parent(n.Path)):], true
		} else {
			staged = st.place()
		}
		switch n.Kind {
		case Dir:
			if !nested && x.isFolder(n.Path) && !c.swaps(n.Path) {
				c.chmod = append(c.chmod, n) // it is there, but ignored, so that the scan has passed over it
				continue
			}
			folders = append(folders, target{node: n, path: staged})
			if err := x.root.Mkdir(staged, 0o700); err != nil {
				return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
			}
			tops[n.Path] = staged
		case Symlink:
			if err := x.root.Symlink(n.Target, staged); err != nil {
				return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
			}
		default:
			from := n.Path
			if other, ok := c.origin[n.Path]; ok {
				from = other
			}
			targets = append(targets, target{n, staged, from})
			files = append(files, n)
		}
		if !nested {
			moves = append(moves, move{staged, n})
		}
	}
	x.fetching = true
	if err := x.fetch(ctx, s, targets, files); err != nil {
		return err
	}
	x.fetching = false
	late, err := x.setModes(folders, moves)
	if err != nil {
		return err
	}
	if err := x.settleDisk(); err != nil {
		return err
	}
	return x.publish(ctx, c, moves, late)
}

// setModes gives the staged folders their modes, from the inside out. Those that are to be renamed and that their
// owner may not write to get theirs late, after that.
func (x *session) setModes(folders []target, moves []move) (late []*Node, err error) {
	moved := make(map[string]bool, len(moves))
	for _, m := range moves {
		moved[m.from] = true
	}
	for i := len(folders) - 1; i >= 0; i-- {
		f := folders[i]
		if moved[f.path] && f.node.Mode&0o300 != 0o300 {
			late = append(late, f.node)
			continue
		}
		if err := x.root.Chmod(f.path, fs.FileMode(f.node.Mode)); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "sync: the mode of %q: %w", clip(f.node.Path), err)
		}
	}
	return late, nil
}

func (c *changes) swaps(path string) bool {
	for _, n := range c.swapped {
		if n.Path == path {
			return true
		}
	}
	return false
}

func (x *session) isFolder(path string) bool {
	info, err := x.root.Lstat(path)
	return err == nil && info.IsDir()
}

func (x *session) fetch(ctx context.Context, s *State, targets []target, files []*Node) error {
	meter := newMeter(x.cfg.Progress, "download", files)
	x.report.Downloaded = len(targets)
	if s.Layout == Packed {
		return x.fetchPacked(ctx, s, targets, meter.add)
	}
	var packs, own []target
	for _, t := range targets {
		if len(t.node.At.Objects) > 0 {
			packs = append(packs, t) // it does not lie under its own path yet
		} else {
			own = append(own, t)
		}
	}
	if err := x.fetchPacked(ctx, s, packs, meter.add); err != nil {
		return err
	}
	return x.fetchPlain(ctx, own, meter.add)
}

// settleDisk makes the stage durable, so that no rename can become durable before what it publishes.
func (x *session) settleDisk() error {
	raw, err := x.dir.SyscallConn()
	if err == nil {
		if failed := raw.Control(func(fd uintptr) { err = syncFiles(int(fd)) }); failed != nil {
			err = failed
		}
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: making files durable: %w", err)
	}
	return nil
}

// publish changes the folder. From here to its end an interruption leaves a folder of which each path is as it was or
// as it will be, and the next pull goes on.
func (x *session) publish(ctx context.Context, c *changes, moves []move, late []*Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for path, was := range c.was {
		if err := x.untouched(path, was); err != nil {
			return err
		}
	}
	if err := x.stillFree(c, moves); err != nil {
		return err
	}
	if err := x.announce(c.swapped); err != nil {
		return err
	}
	for i := len(c.remove) - 1; i >= 0; i-- {
		if err := x.removeLocal(c, c.remove[i]); err != nil {
			return err
		}
	}
	for _, m := range moves {
		err := unlocked(x.root, m.node.Path, func() error { return x.root.Rename(m.from, m.node.Path) })
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "sync: %q: %w", clip(m.node.Path), err)
		}
	}
	for _, n := range c.chmod {
		if err := x.setMode(n); err != nil {
			return err
		}
	}
	for _, n := range late {
		if err := x.setMode(n); err != nil {
			return err
		}
	}
	return nil
}

// untouched is a conflict when the path has changed since the scan.
func (x *session) untouched(path string, was stat) error {
	now, err := x.lookAt(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && now.Inode == was.Inode && now.Mtime == was.Mtime && now.Ctime == was.Ctime:
		return nil
	case err != nil:
		return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	case was.Size == 0 && x.isFolder(path):
		return nil // what is in a folder is looked at by itself
	}
	return schemas.Errorf(schemas.CodeConflict, "sync: %q was changed while it was being replaced; sync again", clip(path))
}

// stillFree is a conflict when something has come up since the scan where a new path is to be.
func (x *session) stillFree(c *changes, moves []move) (err error) {
	k := &looker{root: x.root}
	defer func() { err = joined(errors.Join(err, k.close())) }()
	for _, m := range moves {
		if _, known := c.was[m.node.Path]; known {
			continue
		}
		switch _, err := k.at(m.node.Path); {
		case err == nil:
			return schemas.Errorf(schemas.CodeConflict, "sync: %q has come up while it was being pulled; sync again", clip(m.node.Path))
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		default:
			return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
		}
	}
	return nil
}

func (x *session) removeLocal(c *changes, n *Node) error {
	err := joined(unlocked(x.root, n.Path, func() error { return x.root.Remove(n.Path) }))
	switch {
	case err == nil:
		x.report.Deleted++
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case n.Kind == Dir && (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)):
		if c.swaps(n.Path) {
			return schemas.Errorf(schemas.CodeConflict,
				"sync: a file is to take the place of the folder %q, which holds ignored or new files", clip(n.Path))
		}
		return nil // ignored files keep it
	}
	return schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
}

func (x *session) setMode(n *Node) error {
	f, err := x.root.OpenFile(n.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		err = x.root.Chmod(n.Path, fs.FileMode(n.Mode)) // it cannot be read as it is, and need not be
	} else if err == nil {
		err = errors.Join(f.Chmod(fs.FileMode(n.Mode)), f.Close())
	}
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "sync: the mode of %q: %w", clip(n.Path), joined(err))
	}
	return nil
}
