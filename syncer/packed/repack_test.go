package packed_test

import (
	"crypto/sha256"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

// TestPrepareReusesStoredPack repacks a file into a pack that an earlier generation has stored: the state must name that
// object, since none is stored under the new generation.
func TestPrepareReusesStoredPack(t *testing.T) {
	store := &storetest.Memory{}
	put := func(data string, generation uint64) state.Object {
		o := state.Object{Digest: sha256.Sum256([]byte(data)), Size: int64(len(data)), Generation: generation}
		_, err := store.Put(t.Context(), o.Key(), objectstore.Bytes([]byte(data)), objectstore.Condition{})
		testkit.Must(t, err)
		return o
	}
	file := statetest.File("f", "kept")
	file.At = state.Location{Objects: []uint32{0}}
	now := &state.State{Layout: state.Packed, Generation: 7, Nodes: []state.Node{file},
		Objects: []state.Object{put("kept and much that is unused", 1), put("kept", 2)}}
	next := *now
	l := &packed.Layout{Store: store, Index: packed.NewObjectIndex(store, now, "")}
	testkit.Must(t, l.Prepare(t.Context(), &next))
	testkit.Equal(t, "objects", next.Objects, now.Objects[1:])
	testkit.Must(t, next.Check(state.Limits{}.WithDefaults()))
	got := make([]byte, file.Size)
	_, err := packed.NewReader(t.Context(), store, &next, &next.Nodes[0]).ReadAt(got, 0)
	testkit.Must(t, err)
	testkit.Equal(t, "content of f", string(got), "kept")
}
