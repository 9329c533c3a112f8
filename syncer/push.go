package syncer

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// commitTries is how often a push that lost the race for the state starts again from the read.
const commitTries = 60

// Push stores what the folder holds that the store does not have yet, and makes it the workspace's next version. What
// others have stored meanwhile is kept. Nothing in the folder changes but the state file and the index.
//
// Errors: conflict when a path changed on both sides and OnConflict does not settle it, or when a sync of this folder
// is running, or when other writers were first again and again; invalid_argument for a state that is refused;
// unavailable when the store could not be reached. The report is never nil.
func (s *Syncer) Push(ctx context.Context) (*Report, error) {
	return s.operate(func(x *session) error { return x.push(ctx) })
}

// operate runs one operation on the folder and reports it.
func (s *Syncer) operate(run func(x *session) error) (*Report, error) {
	x, err := s.open()
	if err != nil {
		return &Report{}, err
	}
	err = errors.Join(run(x), x.close())
	x.report.DurationMS = s.cfg.Now().Sub(x.began).Milliseconds()
	return x.report, joined(err)
}

// joined undoes a join of one error, so that its text and its code stay as they are.
func joined(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) == 1 {
		return many.Unwrap()[0]
	}
	return err
}

func (x *session) push(ctx context.Context) error {
	l, err := x.scan(ctx)
	if err != nil {
		return err
	}
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(5*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(0))
	var kept *shelf
	for range commitTries {
		was, err := x.remote(ctx)
		if err != nil {
			return err
		}
		steps, err := x.decided(ctx, l, was.state, TakeLocal)
		if err != nil {
			return err
		}
		if err := x.conflicts(steps); err != nil {
			return err
		}
		done, err := x.pushSteps(ctx, l, was, steps, &kept)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait.NextBackOff()):
		}
	}
	return schemas.Errorf(schemas.CodeConflict, "sync: other writers were first %d times; nothing was changed", commitTries)
}

// pushSteps carries a plan out. It is false when another writer was first.
func (x *session) pushSteps(ctx context.Context, l *local, was *snapshot, steps []Step, kept **shelf) (bool, error) {
	sending := sends(steps)
	if sending == 0 && !was.damaged && (was.token != "" || len(was.state.Nodes) == 0) {
		return true, x.remember(l, was.state, was.token, steps, pushedBase)
	}
	if err := x.probe(ctx, was); err != nil {
		return false, err
	}
	next := &State{Layout: was.state.Layout, Generation: was.state.Generation, Floor: was.state.Floor,
		Count: was.state.Count + 1, Parent: was.state.ID}
	store, err := x.keeper(was, kept)
	if err != nil {
		return false, err
	}
	if next.Layout == Plain { // what it sends has its final name at once
		if err := x.cfg.Fence(ctx); err != nil {
			return false, err
		}
	}
	changed := false
	group, side := errgroup.WithContext(ctx)
	early := sending > l.rehashed // else it may well turn out that nothing has changed
	group.Go(func() error {
		if !early {
			return nil
		}
		return x.archive(side, was)
	})
	group.Go(func() error {
		x.clashes(steps)
		todo, place := filesToSend(steps, l)
		if err := x.send(side, l, steps, todo, place, store); err != nil {
			return err
		}
		if changed = x.nextTree(next, was, steps, store); !changed {
			return nil
		}
		return store.finish(side, next)
	})
	if err := group.Wait(); err != nil {
		return false, err
	}
	if !changed && !was.damaged && (was.token != "" || len(next.Nodes) == 0) {
		return true, x.remember(l, was.state, was.token, steps, pushedBase)
	}
	next.SyncedAt = x.cfg.Now().UTC()
	next.ID = newID(next.SyncedAt, was.state.ID)
	x.cfg.Progress(Progress{Phase: "commit"})
	if !early {
		if err := x.archive(ctx, was); err != nil {
			return false, err
		}
	}
	token, done, err := x.commit(ctx, was, next.Encode())
	if !done || err != nil {
		return false, err
	}
	x.report.Version, x.report.Changed = next.ID, true
	if err := store.committed(ctx); err != nil {
		x.report.Notes = append(x.report.Notes, "objects that are no longer needed were left behind: "+err.Error())
	}
	if err := x.remember(l, next, token, steps, pushedBase); err != nil {
		return true, err
	}
	x.tidy(ctx, next)
	return true, nil
}

// sends is how many paths a push has something to do about, as far as can be said before their content is read.
func sends(steps []Step) (count int) {
	for i := range steps {
		if d := steps[i].Do; d == TakeLocal || d == KeepBoth {
			count++
		}
	}
	return count
}

// keeper is how content is kept: the layout.
type keeper interface {
	// send stores what files hold and says what that was: nil for one that went away.
	send(ctx context.Context, x *session, files []*Node, was []*Node) ([]*content, error)
	// has says where content is that need not be sent.
	has(n *Node) (Location, bool)
	// settle fills in what the next state needs to say of objects.
	settle(next *State)
	// finish does what must be done before the commit, committed what may be done after it.
	finish(ctx context.Context, next *State) error
	committed(ctx context.Context) error
}

func (x *session) keeper(was *snapshot, kept **shelf) (keeper, error) {
	if was.state.Layout == Plain {
		if x.cfg.OnConflict == ConflictBoth && len(x.report.Conflicts) > 0 {
			return nil, schemas.Errorf(schemas.CodeInvalidArgument,
				"sync: the plain layout cannot keep both sides in a push; pull with on-conflict both first, then push")
		}
		return &plain{
			store: x.store, parallel: x.parallel(x.cfg.Uploads, 64), was: was.state,
			force: x.cfg.OnConflict == ConflictLocal,
		}, nil
	}
	// What an earlier try has sent may be relied on as long as no garbage collection has begun since.
	h := newShelf(x.store, was.state)
	if old := *kept; old != nil && old.generation == h.generation {
		h.adopt(old)
	}
	*kept = h
	return &packed{shelf: h, parallel: x.parallel(x.cfg.Uploads, 8)}, nil
}

func (x *session) parallel(configured, otherwise int) int {
	if configured > 0 {
		return configured
	}
	return otherwise
}

// filesToSend are the local files that the store is to have, with their steps' and their places in the scan.
func filesToSend(steps []Step, l *local) (todo []int, place []int) {
	at := 0
	for i := range steps {
		n := steps[i].Local
		if n == nil {
			continue
		}
		if d := steps[i].Do; n.Kind == File && (d == TakeLocal || d == KeepBoth) {
			todo = append(todo, i)
			place = append(place, at)
		}
		at++
	}
	return todo, place
}

// send stores the content of the files at the given steps, and puts what was read of them into the scan. A file that
// went away since is left for the next push.
func (x *session) send(ctx context.Context, l *local, steps []Step, todo, place []int, store keeper) error {
	var files, was []*Node
	var which []int
	for k, i := range todo {
		n := steps[i].Local
		if n.Hashed {
			if _, ok := store.has(n); ok {
				continue
			}
			if steps[i].Remote != nil && sameContent(n, steps[i].Remote) {
				continue
			}
		}
		files, was, which = append(files, n), append(was, steps[i].Remote), append(which, k)
	}
	if len(files) == 0 {
		return nil
	}
	results, err := store.send(ctx, x, files, was)
	if err != nil {
		return err
	}
	for k, c := range results {
		i, at := todo[which[k]], place[which[k]]
		if c == nil {
			steps[i].Do = Leave
			continue
		}
		n := c.node(steps[i].Local)
		steps[i].Local, l.nodes[at], l.stats[at] = &n, &n, c.stat
		if c.unsteady {
			x.report.Unsteady = append(x.report.Unsteady, n.Path)
		}
	}
	return nil
}

// nextTree fills next with the tree that the store has after this push, and says whether that is another one.
func (x *session) nextTree(next *State, was *snapshot, steps []Step, store keeper) (changed bool) {
	next.Nodes = make([]Node, 0, len(steps))
	x.report.Uploaded, x.report.Deleted = 0, 0
	var beside []Node
	for i := range steps {
		s := &steps[i]
		n := s.Remote
		if (s.Do == TakeLocal || s.Do == KeepBoth) && !same(s.Local, s.Remote) {
			n, changed = s.Local, true
			switch {
			case n == nil:
				x.report.Deleted++
			case n.Kind == File:
				x.report.Uploaded++
			}
			if s.Do == KeepBoth {
				copied := *s.Remote
				copied.Path = besideName(copied.Path, was.state.ID)
				beside = append(beside, copied)
			}
		}
		if n == nil {
			continue
		}
		kept := *n
		if n != s.Remote {
			kept.At = Location{}
			if at, ok := store.has(n); ok {
				kept.At = at
			} else if s.Remote != nil && sameContent(n, s.Remote) {
				kept.At = s.Remote.At
			}
		}
		next.Nodes = append(next.Nodes, kept)
	}
	next.Nodes = mergeNodes(next.Nodes, beside)
	store.settle(next)
	return changed
}

// pushedBase is what both sides have in common after a push: what is the same on both, and of the rest what was. whole
// says whether that is all that the store has.
func pushedBase(steps []Step, now []Node) (base []Node, whole bool) {
	base = make([]Node, 0, len(steps))
	kept := 0
	at := 0
	for i := range steps {
		s := &steps[i]
		path := s.Path()
		for at < len(now) && comparePaths(now[at].Path, path) < 0 {
			at++
		}
		switch s.Do {
		case InSync, TakeLocal, KeepBoth:
			if at < len(now) && now[at].Path == path {
				base = append(base, now[at])
				kept++
			}
		default:
			if s.Base != nil {
				n := *s.Base
				n.At = Location{}
				base = append(base, n)
			}
		}
	}
	return base, kept == len(base) && kept == len(now)
}

// mergeNodes puts more into nodes, in the order of a walk. Where a path is in both, nodes' stays.
func mergeNodes(nodes, more []Node) []Node {
	if len(more) == 0 {
		return nodes
	}
	all := make([]Node, 0, len(nodes)+len(more))
	i := 0
	for _, m := range more {
		for i < len(nodes) && comparePaths(nodes[i].Path, m.Path) < 0 {
			all = append(all, nodes[i])
			i++
		}
		if i >= len(nodes) || nodes[i].Path != m.Path {
			all = append(all, m)
		}
	}
	return append(all, nodes[i:]...)
}

// besideName is where the store's side of a conflict is kept beside the folder's.
func besideName(path, version string) string {
	const suffix = ".conflict-"
	if version == "" {
		version = "remote"
	}
	dir, name := parent(path), path
	if dir != "" {
		name = path[len(dir)+1:]
	}
	if room := maxName - len(suffix) - len(version); len(name) > room {
		name = name[:room]
	}
	if dir != "" {
		name = dir + "/" + name
	}
	return name + suffix + version
}
