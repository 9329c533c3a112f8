package syncer_test

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// content returns the keys of a store that hold content.
func content(t *testing.T, store objectstore.Store) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), "") {
		testkit.Must(t, err)
		if info.Key != state.ReservedName && !strings.HasPrefix(info.Key, state.VersionPrefix) {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

func deleteKey(t *testing.T, store objectstore.Store, key string) {
	t.Helper()
	testkit.Must(t, store.Delete(t.Context(), key))
}

func flipBit(t *testing.T, store objectstore.Store, key string) {
	t.Helper()
	data, _, err := store.Get(t.Context(), key, objectstore.Range{}, nil)
	testkit.Must(t, err)
	if len(data) == 0 {
		return
	}
	data[len(data)/2] ^= 4
	_, err = store.Put(t.Context(), key, objectstore.Bytes(data), objectstore.Condition{})
	testkit.Must(t, err)
}

func truncate(t *testing.T, store objectstore.Store, key string) {
	t.Helper()
	data, _, err := store.Get(t.Context(), key, objectstore.Range{}, nil)
	testkit.Must(t, err)
	_, err = store.Put(t.Context(), key, objectstore.Bytes(data[:len(data)/2]), objectstore.Condition{})
	testkit.Must(t, err)
}

// TestCheckFindsAndRepairsDamage damages each object of a store in each way: check reports the damage by path, and repairs it from a
// folder that has the content, under another path too. Sync 5.
func TestCheckFindsAndRepairsDamage(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		for how, damage := range map[string]func(*testing.T, objectstore.Store, string){
			"deleted": deleteKey, "flipped": flipBit, "truncated": truncate,
		} {
			t.Run(how, func(t *testing.T) {
				a, store := treetest.New(t), &storetest.Memory{}
				fill(a)
				a.Push(store, o)
				check := func(w *treetest.Tree, store objectstore.Store, repair bool) (*syncer.CheckReport, error) {
					return w.Syncer(store, treetest.OnConflict(plan.ConflictLocal)).Check(t.Context(), repair)
				}
				whole, err := check(a, store, false)
				testkit.Must(t, err)
				testkit.Equal(t, "damage", whole.Damage, []syncer.Damage(nil))
				testkit.Equal(t, "files", whole.Files, 61)
				for i, key := range content(t, store) {
					if layoutOf(o) == state.Plain && i%16 != 0 && key != "large" {
						continue
					}
					store := store.Clone()
					damage(t, store, key)
					found, err := check(a, store, false)
					testkit.WantCode(t, err, schemas.CodeDamaged)
					if len(found.Damage) == 0 {
						t.Fatalf("%s: no damage was found", key)
					}
					if layoutOf(o) == state.Plain {
						testkit.Equal(t, "path", found.Damage[0].Path, key)
					}
					fresh := treetest.New(t)
					if _, err := fresh.Syncer(store).Pull(t.Context()); err == nil {
						t.Errorf("%s: a damaged store was pulled", key)
					}
					_, err = check(fresh, store, true) // which has nothing of it
					testkit.WantCode(t, err, schemas.CodeDamaged)
					r, err := check(a, store, true)
					testkit.Must(t, err)
					testkit.Equal(t, "repaired", r.Repaired, len(r.Damage))
					pulledTree(t, a, store)
					again, err := check(a, store, false)
					testkit.Must(t, err)
					testkit.Equal(t, "damage after the repair", again.Damage, []syncer.Damage(nil))
				}
			})
		}
	})
}

func pulledTree(t *testing.T, want *treetest.Tree, store objectstore.Store) {
	t.Helper()
	seen := treetest.New(t)
	seen.Pull(store)
	treetest.Same(t, want, seen)
}

// TestCheckSeesOtherTools replaces, removes and adds objects in the plain layout as another tool does: its work is kept. Sync 5.
func TestCheckSeesOtherTools(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	for _, name := range []string{"d/replaced", "removed", "same", "odd\\name", "empty"} {
		a.Write(name, name)
	}
	a.Write("empty", "")
	a.Push(store, treetest.Layout(state.Plain))
	for _, key := range []string{"d/replaced", "new/of/other"} {
		_, err := store.Put(t.Context(), key, objectstore.Bytes([]byte("other tool")), objectstore.Condition{})
		testkit.Must(t, err)
	}
	deleteKey(t, store, "removed")
	deleteKey(t, store, "empty") // a pull does not need it, and other tools do
	want := []syncer.Damage{
		{Path: "d/replaced", Problem: "replaced"}, {Path: "empty", Problem: "missing"}, {Path: "removed", Problem: "missing"},
	}
	r, err := a.Syncer(store).Check(t.Context(), false)
	testkit.WantCode(t, err, schemas.CodeDamaged)
	testkit.Equal(t, "damage", r.Damage, want)
	testkit.Equal(t, "others", r.Others, []string{"new/of/other"})
	want[1].Repaired, want[2].Repaired = true, true
	r, err = a.Syncer(store).Check(t.Context(), true)
	testkit.WantCode(t, err, schemas.CodeDamaged)
	testkit.Equal(t, "damage of the repair", r.Damage, want)
	data, _, err := store.Get(t.Context(), "d/replaced", objectstore.Range{}, nil)
	testkit.Must(t, err)
	testkit.Equal(t, "the other tool's file", string(data), "other tool")
	_, err = a.Syncer(store, treetest.OnConflict(plan.ConflictLocal)).Check(t.Context(), true)
	testkit.Must(t, err)
	pulledTree(t, a, store)
}

// TestCheckReadsVersions damages content that an earlier version has too, and a version itself. Sync 5.
func TestCheckReadsVersions(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("kept", "1")
	first := a.Push(store).Version
	keys := content(t, store)
	a.Write("more", "2")
	second := a.Push(store).Version
	a.Write("more", "3")
	a.Push(store)
	flipBit(t, store, keys[0])
	want := []syncer.Damage{
		{Path: "kept", Problem: "damaged"}, {Path: "kept", Version: second, Problem: "damaged"},
		{Path: "kept", Version: first, Problem: "damaged"},
	}
	r, err := a.Syncer(store).Check(t.Context(), false)
	testkit.WantCode(t, err, schemas.CodeDamaged)
	testkit.Equal(t, "damage", r.Damage, want)
	r, err = a.Syncer(store).Check(t.Context(), true)
	testkit.Must(t, err)
	testkit.Equal(t, "repaired", r.Repaired, 3)
	fresh := treetest.New(t)
	_, err = fresh.Syncer(store).Restore(t.Context(), first)
	testkit.Must(t, err)
	fresh.Want("kept", "1")
	flipBit(t, store, state.VersionPrefix+first)
	r, err = a.Syncer(store).Check(t.Context(), false)
	testkit.WantCode(t, err, schemas.CodeDamaged)
	testkit.Equal(t, "damage of a version", r.Damage, []syncer.Damage{{Path: state.VersionPrefix + first, Version: first, Problem: "damaged"}})
}

// TestCheckRepairsDamagedState checks where the state itself is damaged. Sync 5.
func TestCheckRepairsDamagedState(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, store := treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Push(store, o)
		flipBit(t, store, state.ReservedName)
		r, err := a.Syncer(store).Check(t.Context(), false)
		testkit.WantCode(t, err, schemas.CodeDamaged)
		testkit.Equal(t, "damage", r.Damage, []syncer.Damage{{Path: state.ReservedName, Problem: "damaged"}})
		_, err = a.Syncer(store).Check(t.Context(), true)
		testkit.Must(t, err)
		pulledTree(t, a, store)
	})
}

// TestPushWithVerifySendsAgain pushes with Verify where the store has lost content: without a change in the folder, too. Sync 5.
func TestPushWithVerifySendsAgain(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, store := treetest.New(t), &storetest.Memory{}
		verify := func(c *syncer.Config) { c.Verify = true }
		a.Write("f", "1")
		a.Push(store, o)
		deleteKey(t, store, content(t, store)[0])
		for _, change := range []bool{false, true} {
			if change {
				a.Write("g", "2")
			}
			r := a.Push(store, verify)
			testkit.Equal(t, "changed", r.Changed, true)
			if !change && len(r.Notes) != 1 {
				t.Errorf("notes = %q, want one for what was missing", r.Notes)
			}
			pulledTree(t, a, store)
			wantUnchanged(t, "second push with verify", a.Push(store, verify))
		}
	})
}

// TestRepackGoesOnPastDamage pushes where a pack that is to be rewritten is damaged: the push stores what is new, and reports it. Sync 5.
func TestRepackGoesOnPastDamage(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("big", strings.Repeat("x", 100_000))
	a.Write("kept", "1")
	a.Push(store)
	for _, key := range content(t, store) {
		flipBit(t, store, key)
	}
	a.Write("big", "short")
	r := a.Push(store)
	if !r.Changed || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "repair") {
		t.Errorf("report = %+v, want a new version and one note", r)
	}
	found, err := a.Syncer(store).Check(t.Context(), true)
	testkit.WantCode(t, err, schemas.CodeDamaged) // of the version before, nothing has the file that the push has replaced
	for _, d := range found.Damage {
		testkit.Equal(t, d.Path+" is repaired", d.Repaired, d.Version == "" || d.Path == "kept")
	}
	pulledTree(t, a, store)
}
