package syncer

import (
	"context"
	"crypto/md5"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// plainState makes a state out of what lies under the prefix, for a workspace that other tools have put there.
// Content whose MD5 the listing does not give is read for it.
func (s *Syncer) plainState(ctx context.Context) (*State, error) {
	state := &State{Layout: Plain}
	folders := map[string]bool{}
	for info, err := range s.store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if reserved(info.Key) {
			continue
		}
		if err := CheckPath(info.Key); err != nil {
			return nil, err
		}
		if len(state.Nodes) >= s.cfg.Limits.Entries {
			return nil, schemas.Errorf(schemas.CodeTooLarge, "store: more than %d objects", s.cfg.Limits.Entries)
		}
		n := Node{Path: info.Key, Kind: File, Mode: 0o644, Size: info.Size, Modified: info.Modified.UnixNano(), Hashed: true}
		if info.MD5 != nil {
			n.MD5 = *info.MD5
		}
		state.Nodes = append(state.Nodes, n)
		for dir := parent(n.Path); dir != "" && !folders[dir]; dir = parent(dir) {
			folders[dir] = true
		}
	}
	for dir := range folders {
		state.Nodes = append(state.Nodes, Node{Path: dir, Kind: Dir, Mode: 0o755, Hashed: true})
	}
	if err := s.sumObjects(ctx, state); err != nil {
		return nil, err
	}
	sortNodes(state.Nodes)
	return state, state.check(s.cfg.Limits)
}

// sumObject reads an object for its MD5.
func sumObject(ctx context.Context, store Store, info *Info) (Checksum, error) {
	sum := md5.New()
	var buf []byte
	for at := int64(0); at < info.Size; at += int64(len(buf)) {
		data, _, err := store.Get(ctx, info.Key, Range{Offset: at, Length: min(ChunkSize, info.Size-at), Match: info.Token}, buf[:0])
		if err != nil {
			return Checksum{}, err
		}
		if len(data) == 0 {
			return Checksum{}, schemas.Errorf(schemas.CodeConflict, "store: %q was replaced while it was read", clip(info.Key))
		}
		sum.Write(data)
		buf = data
	}
	return Checksum(sum.Sum(nil)), nil
}

// sumObjects fills in the MD5 of the files that the listing gave none for.
func (s *Syncer) sumObjects(ctx context.Context, state *State) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range 8 {
		group.Go(func() error {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(state.Nodes) {
					return nil
				}
				n := &state.Nodes[i]
				if n.Kind != File || n.MD5 != (Checksum{}) {
					continue
				}
				sum, err := sumObject(ctx, s.store, &Info{Key: n.Path, Size: n.Size})
				if err != nil {
					return err
				}
				n.MD5 = sum
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
