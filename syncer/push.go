package syncer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Push stores what the folder has and the store does not, and makes it the workspace's next version. It keeps what others
// have stored meanwhile. Nothing in the folder changes but the state file and the index.
//
// Errors: conflict when a path changed on both sides and OnConflict does not settle it, when a sync of this folder is
// running, or when other writers were first too often; invalid_argument for a state that is refused, too_large for a tree over
// the limits; damaged for a state that is damaged and for which nothing stands in; unavailable when the store could not be
// reached; [ErrPartial] for paths that could not be read. The report is never nil.
func (s *Syncer) Push(ctx context.Context) (*Report, error) {
	return s.run(ctx, func(ctx context.Context, o *operation) error { return o.push(ctx) })
}

// layout is how a push keeps content in the store. [packed.Layout] documents the methods, and [plain.Layout] what it does
// differently.
type layout interface {
	Upload(ctx context.Context, files, remote []*state.Node) (read []*worktree.Content, sent int64, err error)
	KeepRemote(ctx context.Context, steps []plan.Step) error
	Find(n *state.Node) (state.Location, bool)
	SetObjects(next *state.State)
	Prepare(ctx context.Context, next *state.State) error
	Segment(ctx context.Context, next, was *state.State) error
}

func (o *operation) push(ctx context.Context) error {
	o.replaces = true
	t, err := o.scan(ctx)
	if err != nil {
		return err
	}
	o.uploads.abortLeft(ctx)
	if err = o.pushUntilFirst(ctx, t); err != nil && o.stored != nil && !o.committing {
		o.deleteUnused(ctx, o.stored.Temporary(), nil)
	}
	if err != nil && !o.committing && !o.report.Changed {
		err = errors.Join(err, o.intents.drop())
	}
	err = errors.Join(err, o.resumed.close(ctx, err))
	if err == nil && o.cfg.Verify {
		err = o.verifyStored(ctx)
	}
	if err == nil {
		err = o.partial(t)
	}
	return err
}

// pushUntilFirst pushes, and starts again from the read whenever another writer was first.
func (o *operation) pushUntilFirst(ctx context.Context, t *worktree.Tree) error {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(5*time.Millisecond),
		backoff.WithMaxInterval(500*time.Millisecond), backoff.WithMaxElapsedTime(0))
	for range commitTries {
		was, err := o.remote(ctx)
		if err != nil {
			return err
		}
		steps, err := o.plan(ctx, t, was.state, plan.TakeLocal)
		if err != nil {
			return err
		}
		if err := o.reportConflicts(steps); err != nil {
			return err
		}
		if err := (preview{o}).mayDelete(steps, plan.TakeLocal); err != nil {
			return err
		}
		done, err := o.pushSteps(ctx, t, was, steps)
		if done || err != nil && !errors.Is(err, plain.ErrOvertaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait.NextBackOff()):
		}
	}
	return errTooManyWriters("changed")
}

// pushSteps carries out a plan. done is false when another writer was first.
func (o *operation) pushSteps(ctx context.Context, t *worktree.Tree, was *snapshot, steps []plan.Step) (done bool, err error) {
	changes := 0 // paths to push, known before their content is read
	for i := range steps {
		if d := steps[i].Do; d == plan.TakeLocal || d == plan.KeepBoth {
			changes++
		}
	}
	if changes == 0 && was.damaged == nil && (was.token != "" || was.empty()) {
		return true, o.finishPush(ctx, t, was.state, was.token, steps)
	}
	if err := errors.Join(o.file.checkWritable(), plan.Check(steps, o.cfg.Limits)); err != nil {
		return false, err
	}
	if err := (conditions{o}).probe(ctx); err != nil {
		return false, err
	}
	next := &state.State{Layout: was.state.Layout, Generation: was.state.Generation, Floor: was.state.Floor,
		Count: was.state.Count + 1, Lineage: was.lineage()}
	l, err := o.layout(ctx, was)
	if err != nil {
		return false, err
	}
	changed := false
	group, side := errgroup.WithContext(ctx)
	early := changes > t.Rehashed // else possibly nothing has changed
	if early {
		group.Go(func() error { return o.archive(side, was) })
	}
	group.Go(func() error {
		o.noteCaseCollisions(steps)
		if err := o.upload(side, t, steps, l); err != nil {
			return err
		}
		if err := l.KeepRemote(side, steps); err != nil {
			return err
		}
		if changed = o.nextTree(next, was, steps, l); !changed {
			return nil
		}
		if err := l.Prepare(side, next); err != nil {
			return err
		}
		return l.Segment(side, next, was.carried())
	})
	if err := group.Wait(); err != nil {
		return false, err
	}
	if !changed && was.damaged == nil && (was.token != "" || len(next.Nodes) == 0) {
		o.deleteUnused(ctx, o.stored.Temporary(), nil)
		return true, o.finishPush(ctx, t, was.state, was.token, steps)
	}
	next.SyncedAt = o.cfg.Now().UTC()
	next.ID = state.NewID(next.SyncedAt, was.state.ID)
	o.cfg.Progress(Progress{Phase: "commit"})
	if !early {
		if err := o.archive(ctx, was); err != nil {
			return false, err
		}
	}
	data, err := next.Seal(o.cfg.Limits)
	if err != nil {
		return false, err
	}
	base := baseFunc(plan.PushedBase).of(next, steps)
	if err := o.intents.add(&base); err != nil {
		return false, err
	}
	o.committing = true
	token, done, err := o.replace(ctx, was.token, data)
	if err != nil {
		return false, err
	}
	o.committing = false
	if !done {
		return false, nil
	}
	o.report.Version, o.report.Changed = next.ID, true
	o.deleteUnused(ctx, slices.Concat(o.stored.Temporary(), o.stored.Resumed(), was.state.Objects), next.Objects)
	if err := o.finishPush(ctx, t, next, token, steps); err != nil {
		return true, err
	}
	o.collectSometimes(ctx, next)
	return true, nil
}

// finishPush publishes what this push or an interrupted one has left pending, and writes the local state.
func (o *operation) finishPush(ctx context.Context, t *worktree.Tree, s *state.State, token string, steps []plan.Step) error {
	s, token = o.publish(ctx, t, s, token)
	return o.saveBase(t, s, token, steps, plan.PushedBase)
}

// layout returns the layout for an attempt. It relies on what an earlier attempt has stored as long as no garbage
// collection has begun since.
func (o *operation) layout(ctx context.Context, was *snapshot) (layout, error) {
	if err := o.resumed.open(); err != nil {
		return nil, err
	}
	name := ""
	if was.state.Layout == state.Plain {
		name = o.pushName
	}
	index := packed.NewObjectIndex(o.cfg.Store, was.state, name)
	index.Adopt(o.stored)
	if err := o.resumed.resume(ctx, index, was.state.Generation); err != nil {
		return nil, err
	}
	o.stored = index
	p := packed.Layout{Store: o.cfg.Store, Root: o.root, Index: index, Parallel: o.cfg.Uploads, Meter: o.meter, Note: o.note,
		Skip: o.unread.add, Sizes: o.cfg.Sizes}
	if was.state.Layout == state.Plain {
		return &plain.Layout{Layout: p, Remote: was.state, Token: was.token, Overwrite: o.cfg.OnConflict == plan.ConflictLocal}, nil
	}
	return &p, nil
}

// upload stores the content of the local files that the store does not have, and puts what was read of them into the tree
// and the steps. A file that is gone is left to the next push.
func (o *operation) upload(ctx context.Context, t *worktree.Tree, steps []plan.Step, l layout) error {
	var files, remote []*state.Node
	var step, place []int // of each file: in steps and in the tree
	at := -1
	for i := range steps {
		n, r := steps[i].Local, steps[i].Remote
		if n == nil {
			continue
		}
		at++
		if d := steps[i].Do; n.Kind != state.File || d != plan.TakeLocal && d != plan.KeepBoth {
			continue
		}
		if n.Hashed {
			if _, ok := l.Find(n); ok || r != nil && state.SameContent(n, r) {
				continue
			}
		}
		files, remote = append(files, n), append(remote, r)
		step, place = append(step, i), append(place, at)
	}
	if len(files) == 0 {
		return nil
	}
	read, sent, err := l.Upload(ctx, files, remote)
	o.report.BytesSent += sent
	if err != nil {
		return err
	}
	o.unread.moveTo(t)
	for k, c := range read {
		s := &steps[step[k]]
		if c == nil {
			s.Do = plan.Leave
			continue
		}
		s.Local = t.Set(place[k], c)
		if c.Unsteady {
			o.report.Unsteady = append(o.report.Unsteady, s.Local.Path)
		}
	}
	return nil
}

// nextTree fills next with the tree that the store has after this push, and reports whether it differs from the current
// one.
func (o *operation) nextTree(next *state.State, was *snapshot, steps []plan.Step, l layout) (changed bool) {
	next.Nodes = make([]state.Node, 0, len(steps))
	o.report.Uploaded, o.report.Deleted = 0, 0
	var beside []state.Node
	for i := range steps {
		s := &steps[i]
		n := s.Remote
		if (s.Do == plan.TakeLocal || s.Do == plan.KeepBoth) && !state.Same(s.Local, s.Remote) {
			n, changed = s.Local, true
			switch {
			case n == nil:
				o.report.Deleted++
			case n.Kind == state.File:
				o.report.Uploaded++
			}
			if s.Do == plan.KeepBoth {
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
			kept.At = state.Location{}
			if s.Remote != nil && state.SameContent(n, s.Remote) {
				kept.At = s.Remote.At
			} else if at, ok := l.Find(n); ok {
				kept.At = at
			}
		}
		next.Nodes = append(next.Nodes, kept)
	}
	if len(beside) > 0 {
		next.Nodes = append(next.Nodes, beside...)
		slices.SortStableFunc(next.Nodes, func(a, b state.Node) int { return state.ComparePaths(a.Path, b.Path) })
		// A file that has such a name and the same content already stays. With other content the commit refuses it.
		next.Nodes = slices.CompactFunc(next.Nodes, func(a, b state.Node) bool { return a.Path == b.Path && state.SameContent(&a, &b) })
	}
	l.SetObjects(next)
	return changed
}

// besideName returns the path at which the store's side of a conflict is kept beside the folder's. A name that has to be cut ends
// in digits of its own hash: names that are equal up to the cut stay apart.
func besideName(at, version string) string {
	suffix := ".conflict-" + cmp.Or(version, "remote")
	dir, name := path.Split(at)
	if len(name)+len(suffix) > state.MaxName {
		sum := sha256.Sum256([]byte(name))
		suffix = "~" + hex.EncodeToString(sum[:8]) + suffix
		name = name[:state.MaxName-len(suffix)]
	}
	return dir + name + suffix
}

// publish finishes a committed push of the plain layout, this one or an interrupted one, and returns the state afterwards.
// What fails is noted and left to the next push: the new tree is stored completely, and every reader of the state gets it.
func (o *operation) publish(ctx context.Context, t *worktree.Tree, s *state.State, token string) (*state.State, string) {
	if s.Published() {
		return s, token
	}
	send, err := objectstore.BySize, (conditions{o}).probe(ctx)
	if err == nil {
		send, err = (conditions{o}).sending(ctx, s)
	}
	if err != nil {
		o.note(fmt.Sprintf("version %s is stored, but %d of its files are not under their own paths yet: %v", s.ID, len(s.Pending), err))
		return s, token
	}
	next := *s
	next.ETags = maps.Clone(s.ETags)
	var written sync.Mutex
	p := &plain.Publisher{Store: o.cfg.Store, Root: o.root, Tree: t, State: s, Token: token, Uploads: o.cfg.Uploads, Send: send,
		Overwrite: o.cfg.OnConflict == plan.ConflictLocal, Meter: o.meter,
		Written: func(n *state.Node, token string) {
			written.Lock()
			defer written.Unlock()
			next.SetETag(n, token)
		}}
	left, err := p.Run(ctx)
	if err != nil {
		if info, statErr := o.cfg.Store.Stat(ctx, state.ReservedName); statErr == nil && info.Token != token {
			return s, "" // another writer has replaced the state and takes over the rest
		}
		o.note(fmt.Sprintf("version %s is stored, but %d of its files are not under their own paths yet: push again to publish them: %v",
			s.ID, len(left), err))
	}
	if len(left) == len(s.Pending) && err != nil {
		return s, token
	}
	next.Nodes = slices.Clone(s.Nodes)
	next.Pending, next.Dropping = left, nil
	pending := make(map[string]bool, len(left))
	for _, p := range left {
		pending[p.Path] = true
	}
	for _, p := range s.Pending {
		if at, ok := next.Search(p.Path); ok && !pending[p.Path] {
			next.Nodes[at].At = state.Location{}
		}
	}
	next.CompactObjects()
	now, done, err := o.commit(context.WithoutCancel(ctx), &snapshot{state: s, token: token}, &next)
	switch {
	case err != nil:
		o.note("the files are under their own paths, but the state could not record it: push again: " + err.Error())
		return s, token
	case !done: // another writer was first and takes over the rest
		return &next, ""
	}
	o.deleteUnused(ctx, s.Objects, next.Objects)
	return &next, now
}
