package syncer

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/state"
)

// storedName is the log of what a push has stored: see [packed.Log].
const storedName = state.ReservedName + ".stored"

// openLog opens the log, and gives this push the name of the interrupted one with which it goes on.
func (o *operation) openLog() (err error) {
	if o.log != nil {
		return nil
	}
	if o.log, err = packed.OpenLog(o.root, storedName, o.pushName); err == nil {
		o.pushName = o.log.Push
	}
	return err
}

// resume makes a push rely on what an interrupted one has stored, and the store still has.
func (o *operation) resume(ctx context.Context, index *packed.ObjectIndex, generation uint64) error {
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

// closeLog leaves the log to the next push where this one was interrupted, or has found it, and removes it otherwise. What the plain
// layout has stored is removed when the push fails.
func (o *operation) closeLog(ctx context.Context, err error) error {
	failed, interrupted := err != nil, ctx.Err() != nil || errors.Is(err, schemas.ErrUnavailable)
	switch {
	case o.log == nil && failed:
		return nil //nolint:nilerr // the caller has it
	case o.log == nil:
		return removeOwn(o.root, storedName)
	case failed && (interrupted || len(o.log.Entries) > 0) && (o.stored == nil || len(o.stored.Temporary()) == 0):
		return o.log.Close()
	}
	return o.log.Remove()
}
