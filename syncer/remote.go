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
	"github.com/sluice-dev/sluice/syncer/plain"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// commitTries is how often an operation starts again from the read because another writer replaced the state first.
const commitTries = 60

// cleanupTime bounds the cleanup after an operation that is complete or has failed.
const cleanupTime = 30 * time.Second

// snapshot is the remote state as it was read, with the token to replace it by. state is never nil; token is "" where
// the store has none yet.
type snapshot struct {
	state *state.State
	token string
	// damaged is set when the state in the store could not be read, and state was made from what else is kept.
	damaged bool
}

func (s *snapshot) empty() bool { return s.token == "" && len(s.state.Nodes) == 0 }

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
	data, read, err := s.cfg.Store.Get(ctx, state.ReservedName, objectstore.Range{Max: s.cfg.Limits.StateBytes}, nil)
	if errors.Is(err, schemas.ErrNotFound) {
		return s.firstRemote(ctx)
	}
	if err != nil {
		return nil, err
	}
	r, err := state.Decode(data, s.cfg.Limits)
	if errors.Is(err, state.ErrCorrupt) {
		return s.repairRemote(ctx, read.Token, err)
	}
	if err != nil {
		return nil, err
	}
	if r.Remote != "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: %s in the store is a copy of a folder's local state: delete it there and push again", state.ReservedName)
	}
	if r.Layout == "" {
		r.Layout = state.Plain
	}
	if s.cfg.Layout != "" && s.cfg.Layout != r.Layout {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"sync: the workspace has layout %q, not %q: omit --layout", r.Layout, s.cfg.Layout)
	}
	return &snapshot{state: r, token: read.Token}, nil
}

// firstRemote returns the state of a place that has none: an empty one, or, in the plain layout, one made from the files
// that other tools have put there.
func (s *Syncer) firstRemote(ctx context.Context) (*snapshot, error) {
	if s.cfg.Layout == state.Plain {
		adopted, err := plain.Adopt(ctx, s.cfg.Store, s.cfg.Limits)
		return &snapshot{state: adopted}, err
	}
	return &snapshot{state: &state.State{Layout: state.Packed}}, nil
}

// repairRemote replaces a corrupt state by the newest version, or by the files under the prefix.
func (s *Syncer) repairRemote(ctx context.Context, token string, cause error) (*snapshot, error) {
	var ids []string
	var err error
	if s.cfg.Layout != state.Plain {
		if ids, err = s.versionIDs(ctx); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		first, err := s.firstRemote(ctx)
		first.token, first.damaged = token, true
		return first, err
	}
	version, err := s.loadVersion(ctx, ids[len(ids)-1])
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	return &snapshot{state: version, token: token, damaged: true}, nil
}

// remote is loadRemote for an operation on the folder. Where the store has lost the workspace, the base no longer
// describes it, and nothing in the folder is deleted for it. Where the store's state is corrupt, its replacement is older
// than the folder, and must not undo what has changed since.
func (o *operation) remote(ctx context.Context) (*snapshot, error) {
	r, err := o.loadRemote(ctx, o.index, o.remoteInfo)
	o.remoteInfo = nil // a second call must see what has changed since
	if err != nil {
		return nil, err
	}
	known := len(o.index.Base.Nodes) > 0
	switch {
	case r.damaged:
		o.note("the store's state was corrupt; an older version stands in for it until the next push writes a new one")
		if known {
			o.index.Base = *r.state
			o.indexValid, o.index.Whole = false, false
		}
	case r.empty() && known:
		o.note("the store no longer has this workspace")
		o.index.Base = state.State{}
		o.indexValid, o.index.Whole = false, false
	}
	return r, nil
}

// commit replaces the remote state that was read by next. done is false when another writer was first. A write whose
// response was lost, and whose retry is refused because it took place, is recognized by its content, which has a unique ID.
func (s *Syncer) commit(ctx context.Context, was *snapshot, next *state.State) (token string, done bool, err error) {
	data := next.Encode()
	if err := s.cfg.Fence(ctx); err != nil {
		return "", false, err
	}
	sha, sum := sha256.Sum256(data), md5.Sum(data)
	cond := objectstore.Condition{Match: was.token, Absent: was.token == ""}
	c := objectstore.Bytes(data)
	c.SHA256, c.MD5 = &sha, &sum
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

// probe checks before this folder's first push to a place that the store honors conditions.
func (o *operation) probe(ctx context.Context, was *snapshot) error {
	if o.cfg.SingleWriter || o.probed || was.token != "" && o.index.Remote == o.cfg.Remote {
		return nil
	}
	if err := objectstore.ProbeConditions(ctx, o.cfg.Store, state.ProbePrefix); err != nil {
		return err
	}
	o.probed = true
	return nil
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
