package plain

import (
	"context"
	"crypto/md5"
	"iter"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Adopt makes a state out of the objects in the store, for a workspace that other tools put there. It reads the objects
// whose MD5 the listing does not have.
func Adopt(ctx context.Context, store objectstore.Store, limits state.Limits) (*state.State, error) {
	s := &state.State{Layout: state.Plain}
	folders := map[string]bool{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if state.Reserved(info.Key) {
			continue
		}
		if err := state.CheckPath(info.Key); err != nil {
			return nil, err
		}
		if len(s.Nodes) >= limits.Entries {
			return nil, schemas.Errorf(schemas.CodeTooLarge, "store: more than %d objects", limits.Entries)
		}
		n := state.Node{Path: info.Key, Kind: state.File, Mode: 0o644, Size: info.Size, Modified: info.Modified.UnixNano(), Hashed: true}
		if info.MD5 != nil {
			n.MD5 = *info.MD5
		}
		s.Nodes = append(s.Nodes, n)
		for dir := state.Parent(n.Path); dir != "" && !folders[dir]; dir = state.Parent(dir) {
			folders[dir] = true
		}
	}
	for dir := range folders {
		s.Nodes = append(s.Nodes, state.Node{Path: dir, Kind: state.Dir, Mode: 0o755, Hashed: true})
	}
	err := parallel.Run(ctx, 8, len(s.Nodes), func(ctx context.Context, indexes iter.Seq[int]) (err error) {
		for i := range indexes {
			n := &s.Nodes[i]
			if n.Kind != state.File || n.MD5 != (state.Checksum{}) {
				continue
			}
			if n.MD5, err = checksum(ctx, store, &objectstore.Info{Key: n.Path, Size: n.Size}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	state.SortNodes(s.Nodes)
	return s, s.Check(limits)
}

// checksum returns the MD5 of a stored object. It reads the object where the store does not report the MD5.
func checksum(ctx context.Context, store objectstore.Store, info *objectstore.Info) (state.Checksum, error) {
	if info.MD5 != nil {
		return state.Checksum(*info.MD5), nil
	}
	sum := md5.New()
	var buf []byte
	for at := int64(0); at < info.Size; at += int64(len(buf)) {
		r := objectstore.Range{Offset: at, Length: min(state.ChunkSize, info.Size-at), Match: info.Token}
		data, _, err := store.Get(ctx, info.Key, r, buf[:0])
		if err != nil {
			return state.Checksum{}, err
		}
		if len(data) == 0 {
			return state.Checksum{}, schemas.Errorf(schemas.CodeConflict, "store: %q was replaced while it was read: sync again",
				state.Clip(info.Key))
		}
		sum.Write(data)
		buf = data
	}
	return state.Checksum(sum.Sum(nil)), nil
}
