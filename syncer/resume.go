package syncer

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// storedName is the log of what a push has stored: see [packed.Log].
const storedName = state.ReservedName + ".stored"

// resumption goes on with what an interrupted operation has stored or fetched.
type resumption struct {
	*operation
	log       *packed.Log
	leftovers worktree.Leftovers // of interrupted pulls
}

// open opens the log, and gives this push the name of the interrupted one with which it goes on.
func (o *resumption) open() (err error) {
	if o.log != nil {
		return nil
	}
	if o.log, err = packed.OpenLog(o.own, storedName, o.pushName); err == nil {
		o.pushName = o.log.Push
	}
	return err
}

// resume makes a push rely on what an interrupted one has stored, and the store still has.
func (o *resumption) resume(ctx context.Context, index *packed.ObjectIndex, generation uint64) error {
	has := map[string]int64{}
	if len(o.log.Entries) > 0 {
		for info, err := range o.cfg.Store.List(ctx, state.GenerationPrefix(generation)) {
			if err != nil {
				return err
			}
			has[info.Key] = info.Size
		}
	}
	index.Resume(o.log, func(object *state.Object) bool { return has[object.Key()] == object.Size && object.Size > 0 })
	return nil
}

// close leaves the log to the next push where this one was interrupted, or has found it, and removes it otherwise. What the plain
// layout has stored is removed when the push fails.
func (o *resumption) close(ctx context.Context, err error) error {
	failed, interrupted := err != nil, ctx.Err() != nil || errors.Is(err, schemas.ErrUnavailable)
	switch {
	case o.log == nil && failed:
		return nil //nolint:nilerr // the caller has it
	case o.log == nil:
		return removeOwn(o.own, storedName)
	case failed && (interrupted || len(o.log.Entries) > 0) && (o.stored == nil || len(o.stored.Temporary()) == 0):
		return o.log.Close()
	}
	return o.log.Remove()
}

// take takes files from the stages of interrupted pulls, and returns the targets that are still to fetch, or to complete.
func (o *resumption) take(ctx context.Context, targets []packed.Target) ([]packed.Target, error) {
	w := worktree.NewWriter(o.root)
	var left []packed.Target
	for _, t := range targets {
		n := t.Node
		known := n.MD5 != (state.Checksum{}) && !n.Sparse // what was there must not shine through holes
		if n.Size == 0 || !known || !o.leftovers.Take(t.Path, n) {
			left = append(left, t)
			continue
		}
		if n.Size > state.ChunkSize {
			t.Kept = true
			left = append(left, t)
			continue
		}
		c, err := worktree.HashFile(w.Folders, t.Path, make([]byte, worktree.SmallFile+1), &worktree.Hasher{})
		if read := c.Node(n); err == nil && state.SameContent(&read, n) {
			err = w.Adopt(t.Path, n)
		} else {
			left = append(left, t)
			err = o.root.Remove(t.Path)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, errors.Join(schemas.Errorf(schemas.CodeInternal, "sync: %w", err), w.Close())
		}
	}
	return left, w.Close()
}
