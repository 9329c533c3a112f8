package syncer

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// Version is a state of the workspace that can be restored.
type Version struct {
	ID      string    `json:"id"`      // its name, which begins with its time
	Time    time.Time `json:"time"`    // of its push
	Current bool      `json:"current"` // whether it is what a pull gets
}

// archive keeps the state that is about to be replaced as a version. It keeps the replaced one and not the new one, so
// that only what was the state can be a version, whichever writer wins the race.
func (o *operation) archive(ctx context.Context, was *snapshot) error {
	if was.damaged != nil {
		return keepDamaged(ctx, &o.cfg, was)
	}
	if was.state.Layout != state.Packed || was.token == "" || was.state.ID == "" {
		return nil
	}
	data, err := new(packed.Compressor).Compress(was.state.Encode())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	c := objectstore.Bytes(data)
	c.SHA256 = &sum
	_, err = o.cfg.Store.Put(ctx, state.VersionPrefix+was.state.ID, c, objectstore.Condition{})
	return err
}

// Versions returns the versions in the store, the newest first. The plain layout has only the current one.
func (s *Syncer) Versions(ctx context.Context) ([]Version, error) {
	was, err := s.loadRemote(ctx, &worktree.Index{}, nil)
	if err != nil {
		return nil, err
	}
	ids, err := s.archived(ctx, was.state)
	if err != nil {
		return nil, err
	}
	var all []Version
	if was.state.ID != "" {
		ids = append(ids, was.state.ID)
	}
	for i := len(ids) - 1; i >= 0; i-- {
		t, err := state.IDTime(ids[i])
		if err != nil {
			continue
		}
		all = append(all, Version{ID: ids[i], Time: t, Current: ids[i] == was.state.ID})
	}
	return all, nil
}

// storedVersion is a version before the current one.
type storedVersion struct {
	id       string
	replaced time.Time // by the store's clock
}

// storedVersions returns the stored versions, the oldest first. A version is stored when it is replaced.
func (s *Syncer) storedVersions(ctx context.Context) (all []storedVersion, err error) {
	for info, err := range s.cfg.Store.List(ctx, state.VersionPrefix) {
		if err != nil {
			return nil, err
		}
		if id := strings.TrimPrefix(info.Key, state.VersionPrefix); state.IsID(id) {
			all = append(all, storedVersion{id, info.Modified})
		}
	}
	return all, nil
}

// archived returns the IDs of the usable versions before the current one, the oldest first.
func (s *Syncer) archived(ctx context.Context, now *state.State) (ids []string, err error) {
	all, err := s.storedVersions(ctx)
	for _, v := range all {
		if _, bad := state.IDTime(v.id); bad == nil && v.id >= now.Floor && v.id < now.ID {
			ids = append(ids, v.id)
		}
	}
	return ids, err
}

// loadVersion reads a version. known are states that may share segments with it; nil is none.
func (s *Syncer) loadVersion(ctx context.Context, id string, known ...*state.State) (version *state.State, err error) {
	err = objectstore.Reread(func() error {
		version, err = s.readVersion(ctx, id, known)
		return err
	})
	return version, err
}

func (s *Syncer) readVersion(ctx context.Context, id string, known []*state.State) (*state.State, error) {
	data, _, err := s.cfg.Store.Get(ctx, state.VersionPrefix+id, objectstore.Range{Max: s.cfg.Limits.StateBytes}, nil)
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(s.cfg.Limits.StateBytes)))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	defer dec.Close()
	if data, err = dec.DecodeAll(data, nil); err != nil {
		return nil, schemas.Errorf(schemas.CodeDamaged, "sync: version %s: %w: %v", id, state.ErrCorrupt, err)
	}
	version, err := packed.ReadState(ctx, s.cfg.Store, data, known, s.cfg.Limits, s.cfg.Downloads)
	if errors.Is(err, packed.ErrSegmentMissing) && s.wasCollected(ctx, id) {
		return nil, schemas.Errorf(schemas.CodeNotFound, "sync: version %s has been removed", id)
	}
	return version, unusable("version "+id, err)
}

// wasCollected reports whether a collection has removed a version. A push that lost against another one may have stored it again since.
func (s *Syncer) wasCollected(ctx context.Context, id string) bool {
	if _, err := s.cfg.Store.Stat(ctx, state.VersionPrefix+id); errors.Is(err, schemas.ErrNotFound) {
		return true
	}
	now, err := s.loadRemote(ctx, &worktree.Index{}, nil)
	return err == nil && id < now.state.Floor
}

// findVersion returns the version with the ID at, or the newest that is not later than the time at (RFC 3339).
func (s *Syncer) findVersion(ctx context.Context, at string, now *state.State) (*state.State, error) {
	ids, err := s.archived(ctx, now)
	if err != nil {
		return nil, err
	}
	ids = append(ids, now.ID)
	t, timeErr := time.Parse(time.RFC3339Nano, at)
	for i := len(ids) - 1; i >= 0; i-- {
		id := ids[i]
		when, _ := state.IDTime(id)
		if id != at && (timeErr != nil || when.After(t)) {
			continue
		}
		if id == now.ID {
			return now, nil
		}
		return s.loadVersion(ctx, id, now)
	}
	if timeErr != nil {
		return nil, schemas.Errorf(schemas.CodeNotFound,
			"sync: no version %q: use one that `sluice sync versions` lists, or a time such as 2026-01-02T15:04:05Z", state.Clip(at))
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "sync: no version from %s or before: use a later time", at)
}

// Restore makes an earlier version the workspace's newest, under a new name, and pulls it into the folder. It loses
// nothing: what it replaces stays a version, and a change in the folder that was not pushed is a conflict.
//
// Errors: those of [Syncer.Pull], and not_found when no such version is kept.
func (s *Syncer) Restore(ctx context.Context, at string) (*Report, error) {
	return s.run(ctx, func(ctx context.Context, o *operation) error {
		if err := o.restore(ctx, at); err != nil {
			return err
		}
		o.restoring = true
		return o.pull(ctx)
	})
}

func (o *operation) restore(ctx context.Context, at string) error {
	o.replaces = true
	defer func() { o.replaces = false }()
	t, err := o.scan(ctx)
	if err != nil {
		return err
	}
	for range commitTries {
		was, err := o.remote(ctx)
		if err != nil {
			return err
		}
		if was.state.Layout != state.Packed {
			return schemas.Errorf(schemas.CodeInvalidArgument, "sync: the plain layout keeps no versions: use the packed layout")
		}
		version, err := o.findVersion(ctx, at, was.state)
		if err != nil {
			return err
		}
		if version.ID == was.state.ID && was.damaged == nil {
			return nil
		}
		steps, err := o.plan(ctx, t, version, plan.TakeRemote)
		if err != nil {
			return err
		}
		if err := o.reportConflicts(steps); err != nil {
			return err
		}
		next := *version
		next.SyncedAt = o.cfg.Now().UTC()
		next.ID, next.Lineage = state.NewID(next.SyncedAt, was.state.ID), was.lineage()
		next.Generation, next.Floor, next.Count = was.state.Generation, was.state.Floor, was.state.Count+1
		if err := (conditions{o}).probe(ctx); err != nil {
			return err
		}
		if was.damaged != nil { // also what the version shares with it
			l, err := o.layout(ctx, was)
			if err == nil {
				err = l.Segment(ctx, &next, nil)
			}
			if err != nil {
				return err
			}
		}
		if err := o.archive(ctx, was); err != nil {
			return err
		}
		_, done, err := o.commit(ctx, was, &next)
		if done || err != nil {
			return err
		}
	}
	return errTooManyWriters("changed")
}
