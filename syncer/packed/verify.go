package packed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/parallel"
	"github.com/sluice-dev/sluice/syncer/state"
)

// The problems of content.
const (
	Missing = "missing" // an object is not in the store
	Damaged = "damaged" // an object is not what was stored
)

// Verified is what reading the objects of states has found. The zero value has read none.
type Verified struct {
	Objects int   // objects read that are what was stored
	Bytes   int64 // bytes read
	good    map[string]bool
}

// Damage is the content of a state that a pull could not get.
type Damage struct {
	Objects map[uint32]string // the problems of objects, by number
	Files   map[string]string // the problems of files, by path
}

// Verify reads every object of s that it has not read for another state before.
func (v *Verified) Verify(ctx context.Context, store objectstore.Store, s *state.State, requests int) (*Damage, error) {
	if v.good == nil {
		v.good = map[string]bool{}
	}
	files := make(map[uint32][]*state.Node)
	for i := range s.Nodes {
		for _, o := range s.Nodes[i].At.Objects {
			files[o] = append(files[o], &s.Nodes[i])
		}
	}
	var todo []uint32
	for o := range s.Objects {
		if !v.good[s.Objects[o].Key()] {
			todo = append(todo, uint32(o))
		}
	}
	d := &Damage{Objects: map[uint32]string{}, Files: map[string]string{}}
	var mu sync.Mutex
	err := parallel.Run(ctx, cmp.Or(requests, 8), len(todo), func(ctx context.Context, indexes iter.Seq[int]) error {
		var buf []byte
		for i := range indexes {
			o := todo[i]
			data, problem, err := readObject(ctx, store, &s.Objects[o], buf)
			if err != nil {
				return err
			}
			mu.Lock()
			v.Bytes += int64(len(data))
			if problem == "" {
				v.Objects++
				v.good[s.Objects[o].Key()] = true
			} else {
				d.Objects[o] = problem
				for _, n := range files[o] {
					if _, ok := piece(n, data); !ok {
						d.Files[n.Path] = problem
					}
				}
			}
			mu.Unlock()
			buf = data[:0]
		}
		return nil
	})
	return d, err
}

// readObject reads an object and returns its problem, "" for none.
func readObject(ctx context.Context, store objectstore.Store, o *state.Object, buf []byte) (data []byte, problem string, err error) {
	err = objectstore.Reread(func() error {
		data, _, err = store.Get(ctx, o.Key(), objectstore.Range{Max: 4 * state.ChunkSize}, buf)
		if err == nil && (int64(len(data)) != o.Size || state.Digest(sha256.Sum256(data)) != o.Digest) {
			err = damaged("", o)
		}
		return err
	})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return nil, Missing, nil
	case errors.Is(err, schemas.ErrTooLarge):
		return nil, Damaged, nil
	case errors.Is(err, schemas.ErrDamaged):
		return data, Damaged, nil
	case err != nil:
		return nil, "", err
	}
	return data, "", nil
}

// piece returns the content of a file in a pack, and whether it is what was stored.
func piece(n *state.Node, pack []byte) ([]byte, bool) {
	if len(n.At.Objects) != 1 || n.At.Offset+n.Size > int64(len(pack)) {
		return nil, false
	}
	data := pack[n.At.Offset:][:n.Size]
	return data, state.Digest(sha256.Sum256(data)) == n.Digest
}

// Forget makes the push rely on none of the objects.
func (x *ObjectIndex) Forget(objects map[uint32]string) {
	for o := range objects {
		delete(x.byHash, x.objects[o].Digest)
	}
	for d, at := range x.files {
		for _, o := range at.Objects {
			if _, lost := objects[o]; lost {
				delete(x.files, d)
			}
		}
	}
}

// Salvage moves the files of damaged packs that are whole to new packs, as [Layout.Prepare] does with wasteful ones, and lists in next
// the objects that its files refer to. It returns how many it has moved.
func (l *Layout) Salvage(ctx context.Context, next *state.State, d *Damage) (moved int, err error) {
	next.Objects = slices.Clone(l.Index.objects)
	r := &repacker{index: l.Index, next: next, offsets: map[state.Digest]int64{}}
	for o, problem := range d.Objects {
		if problem == Missing {
			continue
		}
		data, _, err := readObject(ctx, l.Store, &next.Objects[o], nil)
		if err != nil {
			return 0, err
		}
		for i := range next.Nodes {
			n := &next.Nodes[i]
			if len(n.At.Objects) != 1 || n.At.Objects[0] != o {
				continue
			}
			if whole, ok := piece(n, data); ok {
				if err := r.add(ctx, n, whole); err != nil {
					return 0, err
				}
				moved++
			}
		}
	}
	err = r.flush(ctx)
	next.CompactObjects()
	return moved, err
}

// Relocate has the files of s at the given paths refer to where this push knows their content to be stored. It returns how many.
func (l *Layout) Relocate(s *state.State, paths map[string]string) (count int) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if paths[n.Path] == "" {
			continue
		}
		at, ok := l.Index.find(n.Digest)
		if !ok {
			continue
		}
		n.At = state.Location{Offset: at.Offset}
		for _, o := range at.Objects {
			n.At.Objects = append(n.At.Objects, uint32(len(s.Objects)))
			s.Objects = append(s.Objects, l.Index.object(o))
		}
		delete(paths, n.Path)
		count++
	}
	s.CompactObjects()
	return count
}
