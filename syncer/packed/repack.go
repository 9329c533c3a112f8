package packed

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// A pack is rewritten when half of it is unused, or when there are many small ones, each of which costs every pull a
// request. A push rewrites at most repackBytes, so that it stays short.
const (
	repackBytes = 64 << 20
	smallPack   = 1 << 20
	manyPacks   = 32
)

// Prepare moves the files of wasteful packs into new ones before the commit. The old packs stay as long as a version
// mentions them.
func (l *Layout) Prepare(ctx context.Context, next *state.State) error {
	members := make(map[uint32][]*state.Node)
	for i := range next.Nodes {
		if n := &next.Nodes[i]; len(n.At.Objects) == 1 && n.Size <= worktree.SmallFile {
			members[n.At.Objects[0]] = append(members[n.At.Objects[0]], n)
		}
	}
	wasteful := wastefulPacks(next.Objects, members)
	if len(wasteful) == 0 {
		return nil
	}
	r := &repacker{index: l.Index, next: next, offsets: map[state.Digest]int64{}}
	for _, o := range wasteful {
		object := next.Objects[o]
		data, problem, err := readObject(ctx, l.Store, &object, nil)
		if err != nil {
			return err
		}
		if problem != "" { // the push goes on: what it stores itself is whole
			l.Note(fmt.Sprintf("%d files in the store cannot be pulled, such as %q, since their pack is %s: repair them with check --repair",
				len(members[o]), state.Clip(members[o][0].Path), problem))
			continue
		}
		for _, n := range members[o] {
			if err := r.add(ctx, n, data[n.At.Offset:][:n.Size]); err != nil {
				return err
			}
		}
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	next.CompactObjects()
	return nil
}

type repacker struct {
	index   *ObjectIndex
	next    *state.State
	pack    []byte
	moved   []*state.Node
	offsets map[state.Digest]int64
}

func (r *repacker) add(ctx context.Context, n *state.Node, data []byte) error {
	if _, ok := r.offsets[n.Digest]; !ok {
		if len(r.pack)+len(data) > state.ChunkSize {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		r.offsets[n.Digest] = int64(len(r.pack))
		r.pack = append(r.pack, data...)
	}
	r.moved = append(r.moved, n)
	return nil
}

func (r *repacker) flush(ctx context.Context) error {
	if len(r.pack) == 0 {
		return nil
	}
	stored, _, err := r.index.Add(ctx, r.pack)
	if err != nil {
		return err
	}
	number := uint32(len(r.next.Objects))
	r.next.Objects = append(r.next.Objects, r.index.object(stored))
	for _, n := range r.moved {
		n.At = state.Location{Objects: []uint32{number}, Offset: r.offsets[n.Digest]}
	}
	r.pack, r.moved = r.pack[:0], nil
	clear(r.offsets)
	return nil
}

func wastefulPacks(objects []state.Object, members map[uint32][]*state.Node) (wasteful []uint32) {
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
			wasteful = append(wasteful, uint32(o))
			budget -= live
		case size < smallPack:
			small = append(small, uint32(o))
		}
	}
	if len(small) > manyPacks {
		for _, o := range small {
			if objects[o].Size <= budget {
				wasteful = append(wasteful, o)
				budget -= objects[o].Size
			}
		}
	}
	slices.Sort(wasteful)
	return wasteful
}
