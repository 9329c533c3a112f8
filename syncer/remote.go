package syncer

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Keys of what Sluice keeps in the store, under the workspace's prefix.
const (
	stateKey      = ReservedName
	objectPrefix  = ReservedName + ".d/objects/"
	versionPrefix = ReservedName + ".d/versions/"
	oddPrefix     = ReservedName + ".d/odd/"
	probePrefix   = ReservedName + ".d/probe/"
)

// key is where the object is stored.
func (o *Object) key() string {
	key := objectPrefix + strconv.FormatUint(o.Generation, 36) + "/" + hex.EncodeToString(o.Digest[:])
	if o.Push != "" {
		key += "-" + o.Push
	}
	return key
}

// snapshot is the remote state as it was read, with the token to replace it by. State is never nil; token is "" where
// there is none yet.
type snapshot struct {
	state *State
	token string
	// damaged is set when the state that is there could not be read, and state was made from what else is kept.
	damaged bool
}

// loadRemote reads the remote state. The index saves the reading, and the memory, when it knows the current one.
func (s *Syncer) loadRemote(ctx context.Context, x *index, ahead *Info) (*snapshot, error) {
	if x.whole && x.token != "" && x.remote == s.cfg.Remote {
		if ahead == nil {
			info, err := s.store.Stat(ctx, stateKey)
			if err != nil && !errors.Is(err, schemas.ErrNotFound) {
				return nil, err
			}
			ahead = &info
		}
		if ahead.Token == x.token {
			return &snapshot{state: &x.base, token: x.token}, nil
		}
	}
	data, info, err := s.store.Get(ctx, stateKey, Range{Max: s.cfg.Limits.StateBytes}, nil)
	if errors.Is(err, schemas.ErrNotFound) {
		return s.firstRemote(ctx)
	}
	if err != nil {
		return nil, err
	}
	state, err := DecodeState(data, s.cfg.Limits)
	if errors.Is(err, ErrCorrupt) {
		return s.repairRemote(ctx, info.Token, err)
	}
	if err != nil {
		return nil, err
	}
	if state.Remote != "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the store's state is a copy of a folder's local state")
	}
	if state.Layout == "" {
		state.Layout = Plain
	}
	if s.cfg.Layout != "" && s.cfg.Layout != state.Layout {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument,
			"the workspace is kept in layout %q, not %q; leave the layout out to go on with it", state.Layout, s.cfg.Layout)
	}
	return &snapshot{state: state, token: info.Token}, nil
}

// remote is loadRemote for an operation on the folder. Where the store has nothing of the workspace any more, the last
// sync says nothing about what is there: nothing in the folder is deleted for it. Where the store's state is corrupt,
// what stands in for it is older than the folder, and is not to bring back what has been changed since.
func (x *session) remote(ctx context.Context) (*snapshot, error) {
	was, err := x.loadRemote(ctx, x.index, x.ahead)
	x.ahead = nil // once: whoever asks again wants to know what has changed since
	if err != nil {
		return nil, err
	}
	known := len(x.index.base.Nodes) > 0
	switch {
	case was.damaged:
		x.note("the store's state was corrupt; what stands in for it is older, and the next push makes it anew")
		if known {
			x.index.base = *was.state
			x.indexed, x.index.whole = false, false
		}
	case was.token == "" && len(was.state.Nodes) == 0 && known:
		x.note("the store has nothing of this workspace any more")
		x.index.base = State{}
		x.indexed, x.index.whole = false, false
	}
	return was, nil
}

func (x *session) note(text string) {
	if !slices.Contains(x.report.Notes, text) {
		x.report.Notes = append(x.report.Notes, text)
	}
}

// newID names a state by its time, later than that of the one before whatever the clock says, so that the order of
// names is the order of commits.
func newID(now time.Time, before string) string {
	now = now.UTC()
	if t, err := idTime(before); err == nil && !now.After(t) {
		now = t.Add(time.Microsecond)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // it never fails: see crypto/rand
	return now.Format(idLayout) + "-" + hex.EncodeToString(random[:])
}

const idLayout = "20060102T150405.000000Z"

func idTime(id string) (time.Time, error) {
	if len(id) < len(idLayout) {
		return time.Time{}, errIndex
	}
	return time.Parse(idLayout, id[:len(idLayout)])
}

// commit replaces the remote state that was read by next. It is false when another writer was first. A write whose
// answer was lost, and which is then refused because it has taken place, is known by its ID.
func (s *Syncer) commit(ctx context.Context, was *snapshot, data []byte) (token string, done bool, err error) {
	if err := s.cfg.Fence(ctx); err != nil {
		return "", false, err
	}
	sha, sum := sha256.Sum256(data), md5.Sum(data)
	cond := Condition{Match: was.token, Absent: was.token == ""}
	c := Content{Reader: bytes.NewReader(data), Size: int64(len(data)), SHA256: &sha, MD5: &sum}
	token, err = s.store.Put(ctx, stateKey, c, cond)
	if err == nil {
		return token, true, nil
	}
	lost := errors.Is(err, schemas.ErrConflict) || errors.Is(err, schemas.ErrNotFound)
	if !lost && !errors.Is(err, schemas.ErrUnavailable) {
		return "", false, err
	}
	there, info, readErr := s.store.Get(ctx, stateKey, Range{Max: s.cfg.Limits.StateBytes}, nil)
	if readErr == nil && bytes.Equal(there, data) {
		return info.Token, true, nil
	}
	if lost && (readErr == nil || errors.Is(readErr, schemas.ErrNotFound)) {
		return "", false, nil
	}
	return "", false, errors.Join(err, readErr)
}
