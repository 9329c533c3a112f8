package syncer

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
)

// conditions finds out which conditions of a write the store honors, and notes it in the folder's index.
type conditions struct{ *operation }

// unconditional is a store that only one writer uses.
type unconditional struct{ objectstore.Store }

// Put implements [objectstore.Store].
func (s unconditional) Put(ctx context.Context, key string, c objectstore.Content, _ objectstore.Condition) (string, error) {
	return s.Store.Put(ctx, key, c, objectstore.Condition{})
}

// probe checks, before this folder first relies on it, that the store honors conditions.
func (o conditions) probe(ctx context.Context) error {
	if o.cfg.SingleWriter || o.index.Probed&objectstore.HonoredInOne != 0 {
		return nil
	}
	if err := objectstore.ProbeConditions(ctx, o.cfg.Store, state.ProbePrefix, objectstore.InOne); err != nil {
		return err
	}
	o.index.Probed |= objectstore.HonoredInOne
	return nil
}

// sending returns how to send the pending files of s. A server that ignores the conditions of files in parts gets each in one
// request.
func (o conditions) sending(ctx context.Context, s *state.State) (objectstore.Sending, error) {
	large := slices.ContainsFunc(s.Pending, func(p state.Pending) bool {
		at, ok := s.Search(p.Path)
		return ok && s.Nodes[at].Size > objectstore.PartsFrom
	})
	const known = objectstore.HonoredInParts | objectstore.IgnoredInParts
	if large && !o.cfg.SingleWriter && o.index.Probed&known == 0 {
		switch err := objectstore.ProbeConditions(ctx, o.cfg.Store, state.ProbePrefix, objectstore.InParts); {
		case errors.Is(err, objectstore.ErrIgnored):
			o.index.Probed |= objectstore.IgnoredInParts
		case err != nil:
			return 0, err
		default:
			o.index.Probed |= objectstore.HonoredInParts
		}
	}
	if o.index.Probed&objectstore.IgnoredInParts != 0 {
		return objectstore.InOne, nil
	}
	return objectstore.BySize, nil
}
