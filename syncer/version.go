package syncer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-dev/sluice/schemas"
)

// Version is a state of the workspace that can be restored.
type Version struct {
	ID      string    `json:"id"`      // its name, which begins with its time
	Time    time.Time `json:"time"`    // when it was pushed
	Current bool      `json:"current"` // whether it is what a pull gets
}

// archive keeps the state that is about to be replaced as a version. It is the replaced one that is kept, not the new
// one, so that only what really was the state can ever be a version, whoever wins the race.
func (x *session) archive(ctx context.Context, was *snapshot) error {
	if was.state.Layout != Packed || was.token == "" || was.damaged || was.state.ID == "" {
		return nil
	}
	data, err := compress(was.state.Encode())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	_, err = x.store.Put(ctx, versionPrefix+was.state.ID,
		Content{Reader: bytes.NewReader(data), Size: int64(len(data)), SHA256: &sum}, Condition{})
	return err
}

func compress(data []byte) ([]byte, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	out := enc.EncodeAll(data, make([]byte, 0, len(data)/2))
	return out, enc.Close()
}

// Versions are the versions that the store has, the newest first. The plain layout has the current one alone.
func (s *Syncer) Versions(ctx context.Context) ([]Version, error) {
	was, err := s.loadRemote(ctx, &index{}, nil)
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
		t, err := idTime(ids[i])
		if err != nil {
			continue
		}
		all = append(all, Version{ID: ids[i], Time: t, Current: ids[i] == was.state.ID})
	}
	return all, nil
}

// archived are the versions before the current one that may be used, the oldest first.
func (s *Syncer) archived(ctx context.Context, now *State) (ids []string, err error) {
	for info, err := range s.store.List(ctx, versionPrefix) {
		if err != nil {
			return nil, err
		}
		id := strings.TrimPrefix(info.Key, versionPrefix)
		if _, bad := idTime(id); bad == nil && id >= now.Floor && id < now.ID {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (s *Syncer) loadVersion(ctx context.Context, id string) (*State, error) {
	data, _, err := s.store.Get(ctx, versionPrefix+id, Range{Max: s.cfg.Limits.StateBytes}, nil)
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(s.cfg.Limits.StateBytes)))
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "sync: %w", err)
	}
	defer dec.Close()
	if data, err = dec.DecodeAll(data, nil); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "version %s: %w: %v", id, ErrCorrupt, err)
	}
	return DecodeState(data, s.cfg.Limits)
}

// resolve finds the version that at names: by its ID, or by a time (RFC 3339), which means the newest that is not
// later.
func (s *Syncer) resolve(ctx context.Context, at string, now *State) (*State, error) {
	ids, err := s.archived(ctx, now)
	if err != nil {
		return nil, err
	}
	ids = append(ids, now.ID)
	t, timeErr := time.Parse(time.RFC3339Nano, at)
	for i := len(ids) - 1; i >= 0; i-- {
		id := ids[i]
		when, _ := idTime(id)
		if id != at && (timeErr != nil || when.After(t)) {
			continue
		}
		if id == now.ID {
			return now, nil
		}
		return s.loadVersion(ctx, id)
	}
	if timeErr != nil {
		return nil, schemas.Errorf(schemas.CodeNotFound,
			"sync: no version %q is kept; give one of those that versions lists, or a time such as 2026-01-02T15:04:05Z", clip(at))
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "sync: no version from %s or before is kept", at)
}

// Restore makes an earlier version the workspace's newest, under a new name, and pulls it into the folder. Nothing is
// lost by it: what it replaces stays a version, and what was changed in the folder and not pushed is a conflict.
//
// Errors: those of [Syncer.Pull], and not_found when no such version is kept.
func (s *Syncer) Restore(ctx context.Context, at string) (*Report, error) {
	return s.operate(func(x *session) error {
		if err := x.restore(ctx, at); err != nil {
			return err
		}
		return x.pull(ctx)
	})
}

func (x *session) restore(ctx context.Context, at string) error {
	l, err := x.scan(ctx)
	if err != nil {
		return err
	}
	for range commitTries {
		was, err := x.remote(ctx)
		if err != nil {
			return err
		}
		if was.state.Layout != Packed {
			return schemas.Errorf(schemas.CodeInvalidArgument, "sync: the plain layout keeps no versions")
		}
		version, err := x.resolve(ctx, at, was.state)
		if err != nil {
			return err
		}
		if version.ID == was.state.ID {
			return nil
		}
		steps, err := x.decided(ctx, l, version, TakeRemote)
		if err != nil {
			return err
		}
		if err := x.conflicts(steps); err != nil {
			return err
		}
		next := *version
		next.SyncedAt = x.cfg.Now().UTC()
		next.ID, next.Parent = newID(next.SyncedAt, was.state.ID), was.state.ID
		next.Generation, next.Floor, next.Count = was.state.Generation, was.state.Floor, was.state.Count+1
		if err := x.archive(ctx, was); err != nil {
			return err
		}
		_, done, err := x.commit(ctx, was, next.Encode())
		if done || err != nil {
			return err
		}
	}
	return schemas.Errorf(schemas.CodeConflict, "sync: other writers were first %d times; nothing was changed", commitTries)
}

// firstRemote is the state of a place that has none: an empty one, or, when other tools have put files there and the
// layout is theirs, one made from what they have put.
func (s *Syncer) firstRemote(ctx context.Context) (*snapshot, error) {
	if s.cfg.Layout == Plain {
		state, err := s.plainState(ctx)
		return &snapshot{state: state}, err
	}
	return &snapshot{state: &State{Layout: Packed}}, nil
}

// repairRemote stands in for a state that is corrupt: the newest version, or what lies under the prefix.
func (s *Syncer) repairRemote(ctx context.Context, token string, cause error) (*snapshot, error) {
	if s.cfg.Layout == Plain {
		state, err := s.plainState(ctx)
		return &snapshot{state: state, token: token, damaged: true}, err
	}
	newest := ""
	for info, err := range s.store.List(ctx, versionPrefix) {
		if err != nil {
			return nil, err
		}
		newest = strings.TrimPrefix(info.Key, versionPrefix)
	}
	if newest == "" {
		return &snapshot{state: &State{Layout: Packed}, token: token, damaged: true}, nil
	}
	state, err := s.loadVersion(ctx, newest)
	if err != nil {
		return nil, errors.Join(cause, err)
	}
	return &snapshot{state: state, token: token, damaged: true}, nil
}
