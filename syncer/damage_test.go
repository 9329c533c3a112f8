package syncer_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

func stored(t *testing.T, store objectstore.Store) []byte {
	t.Helper()
	data, _, err := store.Get(t.Context(), state.ReservedName, objectstore.Range{}, nil)
	testkit.Must(t, err)
	return data
}

// damages returns what a store may return in place of a state.
func damages(good []byte) map[string][]byte {
	zeros := bytes.Clone(good)
	clear(zeros[len(good)/3:][:len(good)/3])
	flipped := bytes.Clone(good)
	flipped[bytes.Index(good, []byte(`"size":`))+1] ^= 1 // a field of another name
	return map[string][]byte{"empty": {}, "half": good[:len(good)/2], "torn": []byte("{ torn"), "zeros": zeros, "flipped": flipped,
		"other": []byte(`{"files":null}`)}
}

// TestDamagedStateIsNeverAnEmptyOne reads a damaged state: every operation but a push and a restore fails with a code of its own, and
// changes nothing. Sync 4.
func TestDamagedStateIsNeverAnEmptyOne(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, knows, fresh, store := treetest.New(t), treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Write("d/g", "2")
		a.Push(store, o)
		knows.Pull(store)
		for name, data := range damages(stored(t, store)) {
			treetest.PutState(t, store, data)
			before := treetest.Objects(t, store)
			for _, w := range []*treetest.Tree{knows, fresh} {
				tree := w.List()
				_, err := w.Syncer(store).Pull(t.Context())
				testkit.WantCode(t, err, schemas.CodeDamaged)
				_, err = w.Syncer(store).Status(t.Context())
				testkit.WantCode(t, err, schemas.CodeDamaged)
				_, err = w.Syncer(store).Versions(t.Context())
				testkit.WantCode(t, err, schemas.CodeDamaged)
				_, err = w.Syncer(store, func(c *syncer.Config) { c.Retention.Keep = 1 }).Collect(t.Context())
				testkit.WantCode(t, err, schemas.CodeDamaged)
				testkit.Equal(t, name+": folder", w.List(), tree)
			}
			testkit.Equal(t, name+": objects", treetest.Objects(t, store), before)
		}
	})
}

// TestFlippedBitIsFound flips each bit of a state: it is refused, or the tree is what it was. Sync 4.
func TestFlippedBitIsFound(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, store := treetest.New(t), &storetest.Memory{}
		a.Write("d/f", "1")
		a.Symlink("d", "l")
		a.Push(store, o)
		data := stored(t, store)
		good, err := state.Decode(data, state.Limits{})
		testkit.Must(t, err)
		for bit := range len(data) * 8 {
			data[bit/8] ^= 1 << (bit % 8)
			if s, err := state.Decode(data, state.Limits{}); err == nil {
				testkit.Equal(t, "state with a flipped bit", s, good)
			} else if schemas.CodeOf(err) != schemas.CodeDamaged {
				t.Fatalf("bit %d: code = %q, want damaged (error: %v)", bit, schemas.CodeOf(err), err)
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
	})
}

// TestPushReplacesDamagedState pushes from a folder that was synced with the damaged state, or with an earlier one: what the store had
// stays, and so does the layout. Sync 4.
func TestPushReplacesDamagedState(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		for _, behind := range []bool{false, true} {
			a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			a.Write("f", "1")
			a.Symlink("f", "l")
			a.Write("x", "")
			a.Chmod("x", 0o755)
			a.Push(store, o)
			b.Pull(store)
			a.Write("f", "11")
			a.Push(store)
			a.Write("g", "2")
			a.Push(store)
			if !behind {
				b.Pull(store)
			}
			treetest.PutState(t, store, []byte("{ torn"))
			b.Write("new", "3")
			r := b.Push(store)
			if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "damaged") {
				t.Errorf("notes = %q, want one for the damaged state", r.Notes)
			}
			lost := behind && layoutOf(o) == state.Packed // of g, only the damaged state knew
			if lost {
				a.Remove("g")
			}
			a.Pull(store)
			b.Pull(store)
			treetest.Same(t, a, b)
			a.Want("new", "3")
			a.Want("f", "11")
			a.WantExists("g", !lost)
			s, err := state.Decode(stored(t, store), state.Limits{})
			testkit.Must(t, err)
			testkit.Equal(t, "layout", s.Layout, layoutOf(o))
			kept := 0
			for info, err := range store.List(t.Context(), state.DamagedPrefix) {
				testkit.Must(t, err)
				testkit.Equal(t, "size of the damaged state", info.Size, int64(len("{ torn")))
				kept++
			}
			testkit.Equal(t, "damaged states that were kept", kept, 1)
		}
	})
}

// TestUnknownFolderReplacesNoDamagedState pushes from a folder that has nothing in common with a damaged state, of which the store has no
// version: in packed there is nothing to stand in for it. Sync 4.
func TestUnknownFolderReplacesNoDamagedState(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, fresh, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Push(store, o)
		treetest.PutState(t, store, nil)
		before := treetest.Objects(t, store)
		fresh.Write("new", "2")
		_, err := fresh.Syncer(store).Push(t.Context())
		if layoutOf(o) == state.Packed {
			testkit.WantCode(t, err, schemas.CodeDamaged)
			testkit.Equal(t, "objects", treetest.Objects(t, store), before)
			return
		}
		testkit.Must(t, err)
		fresh.Pull(store)
		fresh.Want("f", "1")
		s, err := state.Decode(stored(t, store), state.Limits{})
		testkit.Must(t, err)
		testkit.Equal(t, "layout", s.Layout, state.Plain)
	})
}

// TestRestoreReplacesDamagedState restores a version where the newest state is damaged. Sync 4.
func TestRestoreReplacesDamagedState(t *testing.T) {
	a, fresh, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	first := a.Push(store).Version
	a.Write("f", "2")
	a.Push(store)
	treetest.PutState(t, store, []byte("{"))
	_, err := fresh.Syncer(store).Restore(t.Context(), first)
	testkit.Must(t, err)
	fresh.Want("f", "1")
	_, err = a.Syncer(store).Versions(t.Context())
	testkit.Must(t, err)
}

// TestStateOfAnotherToolNeedsNoChecksum reads states that a tool has decoded, changed and encoded with what it does not know. Sync 4.
func TestStateOfAnotherToolNeedsNoChecksum(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Push(store, treetest.Layout(state.Plain))
	_, err := store.Put(t.Context(), "g", objectstore.Bytes(nil), objectstore.Condition{})
	testkit.Must(t, err)
	for name, change := range map[string]*strings.Replacer{
		"compact":  strings.NewReplacer("\n", "", `"files":[`, `"files":[`+emptyFile),
		"indented": strings.NewReplacer(",", ", ", `"files":[`, `"files":[`+emptyFile),
	} {
		before := stored(t, store)
		treetest.PutState(t, store, []byte(change.Replace(string(before))+"\n"))
		b := treetest.New(t)
		b.Pull(store)
		b.Want("f", "1")
		if b.Want("g", ""); t.Failed() {
			t.Log(name)
		}
		treetest.PutState(t, store, before)
	}
}

const emptyFile = `{"path":"g","checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":1767323045},`

// TestEmptyFolderStandsInForNothing damages the state, and pushes from a folder that only knows the place as it was before the first
// push: that would be an empty workspace, for which other folders delete what they have.
func TestEmptyFolderStandsInForNothing(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	b.Pull(store)
	b.Push(store)
	a.Write("f", "of a")
	a.Push(store)
	data, _, err := store.Get(t.Context(), state.ReservedName, objectstore.Range{}, nil)
	testkit.Must(t, err)
	data = bytes.Clone(data)
	data[len(data)/2] ^= 1
	treetest.PutState(t, store, data)
	b.Write("g", "of b")
	_, err = b.Syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeDamaged)
	a.Push(store)
	a.Want("f", "of a")
	b.Push(store)
	b.Pull(store)
	a.Pull(store)
	a.Want("f", "of a")
	treetest.Same(t, a, b)
}
