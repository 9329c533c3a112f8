package syncer

import (
	"context"
	"crypto/sha256"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// When packs are written anew: half of one is dead, or there are many small ones, each of which costs every pull a
// request. A push moves no more than repackBytes, so that it stays a push.
const (
	repackBytes = 64 << 20
	smallPack   = 1 << 20
	manyPacks   = 32
)

// repack moves the files of wasteful packs into new ones. The old packs stay as long as a version mentions them.
func (p *packed) repack(ctx context.Context, next *State) error {
	members := make(map[uint32][]*Node)
	for i := range next.Nodes {
		if n := &next.Nodes[i]; len(n.At.Objects) == 1 && n.Size <= packLimit {
			members[n.At.Objects[0]] = append(members[n.At.Objects[0]], n)
		}
	}
	move := wasteful(next.Objects, members)
	if len(move) == 0 {
		return nil
	}
	r := &repacking{packed: p, next: next, places: map[Digest]int64{}}
	for _, o := range move {
		object := next.Objects[o]
		data, _, err := p.shelf.store.Get(ctx, object.key(), Range{Length: object.Size}, nil)
		if err != nil {
			return err
		}
		if Digest(sha256.Sum256(data)) != object.Digest {
			return schemas.Errorf(schemas.CodeInternal, "store: %s is damaged: its digest is another one", object.key())
		}
		for _, n := range members[o] {
			if err := r.take(ctx, n, data[n.At.Offset:][:n.Size]); err != nil {
				return err
			}
		}
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	next.compactObjects()
	return nil
}

// repacking fills new packs with files of old ones.
type repacking struct {
	*packed
	next   *State
	pack   []byte
	moved  []*Node
	places map[Digest]int64
}

func (r *repacking) take(ctx context.Context, n *Node, data []byte) error {
	if _, ok := r.places[n.Digest]; !ok {
		if len(r.pack)+len(data) > ChunkSize {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		r.places[n.Digest] = int64(len(r.pack))
		r.pack = append(r.pack, data...)
	}
	r.moved = append(r.moved, n)
	return nil
}

func (r *repacking) flush(ctx context.Context) error {
	if len(r.pack) == 0 {
		return nil
	}
	if _, _, err := r.shelf.add(ctx, r.pack); err != nil {
		return err
	}
	at := uint32(len(r.next.Objects))
	r.next.Objects = append(r.next.Objects,
		Object{Digest: sha256.Sum256(r.pack), Size: int64(len(r.pack)), Generation: r.shelf.generation, Push: r.shelf.push})
	for _, n := range r.moved {
		n.At = Location{Objects: []uint32{at}, Offset: r.places[n.Digest]}
	}
	r.pack, r.moved = r.pack[:0], nil
	clear(r.places)
	return nil
}

// wasteful are the packs to write anew.
func wasteful(objects []Object, members map[uint32][]*Node) (move []uint32) {
	var small []uint32
	var budget int64 = repackBytes
	for o := range objects {
		list := members[uint32(o)]
		size := objects[o].Size
		if len(list) == 0 {
			continue
		}
		live, seen := int64(0), map[int64]bool{}
		for _, n := range list {
			if !seen[n.At.Offset] {
				seen[n.At.Offset] = true
				live += n.Size
			}
		}
		switch {
		case live*2 < size && live <= budget:
			move = append(move, uint32(o))
			budget -= live
		case size < smallPack:
			small = append(small, uint32(o))
		}
	}
	if len(small) > manyPacks {
		for _, o := range small {
			if objects[o].Size <= budget {
				move = append(move, o)
				budget -= objects[o].Size
			}
		}
	}
	slices.Sort(move)
	return move
}
