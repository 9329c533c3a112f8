package packed

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
)

// ObjectIndex is what a push knows to be stored: what the remote state refers to, and what the push has added under the
// same generation. A push relies on nothing else, since a garbage collection may remove it.
type ObjectIndex struct {
	store      objectstore.Store
	generation uint64
	push       string // see [state.Object].Push

	mu      sync.Mutex
	objects []state.Object
	byHash  map[state.Digest]uint32         // objects by their digest
	files   map[state.Digest]state.Location // whole files by theirs
	added   map[state.Digest]bool           // objects that this push has stored
	resumed []state.Object                  // objects that an interrupted push has stored
	log     *Log                            // nil for none
}

// NewObjectIndex returns the index of what s refers to. push names the push in the plain layout, else it is "".
func NewObjectIndex(store objectstore.Store, s *state.State, push string) *ObjectIndex {
	x := &ObjectIndex{
		store: store, generation: s.Generation, push: push,
		objects: append(make([]state.Object, 0, len(s.Objects)+16), s.Objects...),
		byHash:  make(map[state.Digest]uint32, len(s.Objects)+16),
		files:   make(map[state.Digest]state.Location, len(s.Nodes)),
		added:   map[state.Digest]bool{},
	}
	for i := range s.Objects {
		x.byHash[s.Objects[i].Digest] = uint32(i)
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Kind == state.File && len(n.At.Objects) > 0 {
			x.files[n.Digest] = n.At
		}
	}
	return x
}

// Adopt takes over what an earlier attempt of the same push has stored, unless a garbage collection has begun since. old
// may be nil.
func (x *ObjectIndex) Adopt(old *ObjectIndex) {
	if old == nil || old.generation != x.generation {
		return
	}
	old.mu.Lock()
	defer old.mu.Unlock()
	number := func(o uint32) uint32 {
		from := old.objects[o]
		at, ok := x.byHash[from.Digest]
		if !ok {
			at = uint32(len(x.objects))
			x.objects = append(x.objects, from)
			x.byHash[from.Digest] = at
		}
		return at
	}
	for d, at := range old.files {
		if _, ok := x.files[d]; ok || !old.hasAdded(at) {
			continue
		}
		objects := make([]uint32, len(at.Objects))
		for i, o := range at.Objects {
			objects[i] = number(o)
		}
		x.files[d] = state.Location{Objects: objects, Offset: at.Offset}
	}
	for i := range old.objects {
		if old.added[old.objects[i].Digest] {
			number(uint32(i))
			x.added[old.objects[i].Digest] = true
		}
	}
}

// hasAdded reports whether this push stored every object of a location.
func (x *ObjectIndex) hasAdded(at state.Location) bool {
	for _, o := range at.Objects {
		if !x.added[x.objects[o].Digest] {
			return false
		}
	}
	return true
}

// Temporary returns the objects that this push has stored under its name, on which no other push relies.
func (x *ObjectIndex) Temporary() (objects []state.Object) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, o := range x.objects {
		if o.Push != "" && x.added[o.Digest] {
			objects = append(objects, o)
		}
	}
	return objects
}

// Add stores data as an object, unless it is stored, and returns its number.
func (x *ObjectIndex) Add(ctx context.Context, data []byte) (number uint32, added bool, err error) {
	d := state.Digest(sha256.Sum256(data))
	x.mu.Lock()
	number, ok := x.byHash[d]
	x.mu.Unlock()
	if ok {
		return number, false, nil
	}
	o := state.Object{Digest: d, Size: int64(len(data)), Generation: x.generation, Push: x.push}
	c := objectstore.Bytes(data)
	c.SHA256 = (*[sha256.Size]byte)(&d)
	if _, err := x.store.Put(ctx, o.Key(), c, objectstore.Condition{}); err != nil {
		return 0, false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	number = uint32(len(x.objects))
	x.objects = append(x.objects, o)
	x.byHash[d] = number
	x.added[d] = true
	return number, true, nil
}

func (x *ObjectIndex) object(number uint32) state.Object {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.objects[number]
}

func (x *ObjectIndex) find(d state.Digest) (state.Location, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.files[d]
	return at, ok
}

// addChunked records the objects of a large file, and returns its digest.
func (x *ObjectIndex) addChunked(objects []uint32) state.Digest {
	x.mu.Lock()
	defer x.mu.Unlock()
	digests := make([]state.Digest, len(objects))
	for i, o := range objects {
		digests[i] = x.objects[o].Digest
	}
	d := state.FileDigest(digests)
	if len(objects) > 0 {
		x.files[d] = state.Location{Objects: objects}
	}
	return d
}

func (x *ObjectIndex) addPack(number uint32, members []member) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range members {
		x.files[m.digest] = state.Location{Objects: []uint32{number}, Offset: m.offset}
	}
}
