package syncer

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// commitTries is how often an operation starts again from the read because another writer replaced the state first.
const commitTries = 60

// maxClockSkew is how far in the future a version may be before it is reported.
const maxClockSkew = 24 * time.Hour

// cleanupTime bounds the cleanup after an operation that is complete or has failed.
const cleanupTime = 30 * time.Second

// snapshot is the remote state as it was read, with the token to replace it by. state is never nil; token is "" where
// the store has none yet.
type snapshot struct {
	state *state.State
	token string
	// damaged has the bytes of a state that is damaged, for which state stands in.
	damaged []byte
}

// carried returns the state whose segments the next one may share: nil where they may be damaged.
func (s *snapshot) carried() *state.State {
	if s.damaged != nil {
		return nil
	}
	return s.state
}

func (s *snapshot) empty() bool { return s.token == "" && len(s.state.Nodes) == 0 }

// lineage returns that of the state that replaces this one.
func (s *snapshot) lineage() []string {
	if s.token == "" {
		return nil
	}
	all := append([]string{s.state.ID}, s.state.Lineage...)
	return all[:min(len(all), state.MaxLineage)]
}

// loadRemote reads the remote state. An index that has the current one saves the reading and the memory. info is the state
// object's, nil to ask for it.
func (s *Syncer) loadRemote(ctx context.Context, x *worktree.Index, info *objectstore.Info) (*snapshot, error) {
	if x.Whole && x.Token != "" && x.Remote == s.cfg.Remote {
		if info == nil {
			now, err := s.cfg.Store.Stat(ctx, state.ReservedName)
			if err != nil && !errors.Is(err, schemas.ErrNotFound) {
				return nil, err
			}
			info = &now
		}
		if info.Token == x.Token {
			return &snapshot{state: &x.Base, token: x.Token}, nil
		}
	}
	token := ""
	for {
		r, err := s.readRemote(ctx, x)
		// A state that was replaced while it was read has lost its segments where the collection's grace period is short.
		if !errors.Is(err, packed.ErrSegmentMissing) || r.token == token {
			return r, err
		}
		token = r.token
	}
}

// readRemote reads the remote state, but not the segments that the index has.
func (s *Syncer) readRemote(ctx context.Context, x *worktree.Index) (*snapshot, error) {
	var known *state.State
	if x.Whole && x.Token != "" && x.Remote == s.cfg.Remote {
		known = &x.Base
	}
	var data []byte
	var read objectstore.Info
	var r *state.State
	err := objectstore.Reread(func() (err error) {
		if data, read, err = s.cfg.Store.Get(ctx, state.ReservedName, objectstore.Range{Max: s.cfg.Limits.StateBytes}, nil); err == nil {
			r, err = packed.ReadState(ctx, s.cfg.Store, data, []*state.State{known}, s.cfg.Limits, s.cfg.Downloads)
		}
		return err
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return s.firstRemote(ctx, &x.Base)
	}
	if errors.Is(err, state.ErrCorrupt) {
		if data == nil {
			data = []byte{} // one without a byte is damaged, too
		}
		return &snapshot{token: read.Token, damaged: data}, schemas.Errorf(schemas.CodeDamaged,
			"sync: the state at %s is damaged: push from a folder that was synced with it, or restore a version: %w", s.cfg.Remote, err)
	}
	if err != nil {
		return nil, unusable("the state at "+s.cfg.Remote, err)
	}
	if r.Remote != "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: %s in the store is a copy of a folder's local state: delete it there and push again", state.ReservedName)
	}
	if r.Layout == "" {
		r.Layout = state.Plain
	}
	return &snapshot{state: r, token: read.Token}, s.checkLayout(r)
}

// DetailState is the detail of an error about the content of a stored state; it says which one.
const DetailState = "state"

// unusable is err with the stored state that it is about, where it is one of its content.
func unusable(which string, err error) error {
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok || e.Code != schemas.CodeInvalidArgument && e.Code != schemas.CodeTooLarge {
		return err
	}
	about := schemas.Errorf(e.Code, "sync: %s cannot be used: %w", which, err)
	about.Details = e.Details
	return about.With(DetailState, which)
}

func (s *Syncer) checkLayout(r *state.State) error {
	if s.cfg.Layout != "" && s.cfg.Layout != r.Layout {
		return schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: the workspace has layout %q, not %q: omit --layout", r.Layout, s.cfg.Layout)
	}
	return nil
}

// firstRemote returns the state of a place that has none: an empty one, or, in the plain layout, one made from the files
// that other tools have put there. known is what the folder knows of them.
func (s *Syncer) firstRemote(ctx context.Context, known *state.State) (*snapshot, error) {
	if s.cfg.Layout == state.Plain {
		adopted, err := plain.Adopt(ctx, s.cfg.Store, s.cfg.Limits, known)
		return &snapshot{state: adopted}, err
	}
	return &snapshot{state: &state.State{Layout: state.Packed}}, nil
}

// remote is loadRemote for an operation on the folder. Where the store has lost the workspace, or was rolled back, the base no longer
// describes it, and nothing in the folder is deleted for it. A push and a restore replace a damaged state by a new one; for
// every other operation it is an error.
func (o *operation) remote(ctx context.Context) (*snapshot, error) {
	r, err := o.loadRemote(ctx, o.index, o.remoteInfo)
	o.remoteInfo = nil // a second call must see what has changed since
	if errors.Is(err, state.ErrCorrupt) && o.replaces {
		if r.state, err = (standIn{o}).find(ctx, err); err == nil {
			err = o.checkLayout(r.state)
		}
	}
	if err == nil && r.token == "" {
		err = plain.Checksums(ctx, o.cfg.Store, r.state, o.later)
	}
	if err != nil {
		return nil, err
	}
	switch stored, err := o.intents.stored(&o.index.Base, r.state); {
	case err != nil:
		return nil, err
	case stored != nil:
		o.forgetBase(*stored)
	}
	if t, err := state.IDTime(r.state.ID); err == nil && t.Sub(o.cfg.Now()) > maxClockSkew {
		o.note(fmt.Sprintf("the newest version is from %s, by the clock of the folder that pushed it: versions since then are named by later times, "+
			"and restored by their IDs", t.Format(time.DateOnly)))
	}
	switch base := &o.index.Base; {
	case r.empty() && len(base.Nodes) > 0:
		o.note("the store no longer has this workspace")
		o.forgetBase(state.State{})
	case !r.state.Follows(base):
		o.report.RolledBack = true
		o.note(fmt.Sprintf("the store was rolled back or begun anew: its version %s does not follow %s, with which this folder was synced; "+
			"nothing is deleted, and what differs is a conflict", r.state.ID, base.ID))
		o.forgetBase(state.State{})
	}
	return r, nil
}

// forgetBase replaces the base by one that is not what the index has.
func (o *operation) forgetBase(base state.State) {
	o.index.Base, o.indexValid, o.index.Whole = base, false, false
}

// commit replaces the remote state that was read by next, once next has passed the checks of a pull. done is false when another
// writer was first.
func (s *Syncer) commit(ctx context.Context, was *snapshot, next *state.State) (token string, done bool, err error) {
	data, err := next.Seal(s.cfg.Limits)
	if err != nil {
		return "", false, err
	}
	return s.replace(ctx, was.token, data)
}

// replace stores data in place of the state that has a token, "" for none. A write whose response was lost, and whose retry is
// refused because it took place, is recognized by its content, which has a unique ID.
func (s *Syncer) replace(ctx context.Context, over string, data []byte) (token string, done bool, err error) {
	if err := s.cfg.Fence(ctx); err != nil {
		return "", false, err
	}
	sha, sum := sha256.Sum256(data), md5.Sum(data)
	cond := objectstore.Condition{Match: over, Absent: over == ""}
	c := objectstore.Bytes(data)
	c.SHA256, c.MD5, c.Send = &sha, &sum, objectstore.InOne
	token, err = s.cfg.Store.Put(ctx, state.ReservedName, c, cond)
	if err == nil {
		return token, true, nil
	}
	lost := errors.Is(err, schemas.ErrConflict) || errors.Is(err, schemas.ErrNotFound)
	if !lost && !errors.Is(err, schemas.ErrUnavailable) {
		return "", false, err
	}
	stored, info, readErr := s.cfg.Store.Get(ctx, state.ReservedName, objectstore.Range{Max: s.cfg.Limits.StateBytes}, nil)
	if readErr == nil && bytes.Equal(stored, data) {
		return info.Token, true, nil
	}
	if lost && (readErr == nil || errors.Is(readErr, schemas.ErrNotFound)) {
		return "", false, nil
	}
	return "", false, errors.Join(err, readErr)
}

func errTooManyWriters(what string) error {
	return schemas.Errorf(schemas.CodeConflict, "sync: other writers were first %d times; nothing was %s: try again later", commitTries, what)
}

// deleteUnused deletes the temporary packs of had that has does not list.
func (o *operation) deleteUnused(ctx context.Context, had, has []state.Object) {
	kept := make(map[string]bool, len(has))
	for i := range has {
		kept[has[i].Key()] = true
	}
	var keys []string
	for i := range had {
		if key := had[i].Key(); !kept[key] && had[i].Push != "" {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	if err := o.cfg.Store.Delete(ctx, keys...); err != nil {
		o.note(fmt.Sprintf("%d unused packs were not deleted and stay until the next garbage collection: %v", len(keys), err))
	}
}
