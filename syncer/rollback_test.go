package syncer_test

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestRolledBackStoreDeletesNothing restores a backup of the store, to which another folder may push before: a pull and a push keep what
// the folder has, and report it. Sync 6.
func TestRolledBackStoreDeletesNothing(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		for _, pushes := range []int{0, 1, 5} {
			a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			a.Write("old", "1")
			a.Write("changed", "1")
			a.Push(store, o)
			b.Pull(store)
			before := store.Clone()
			a.Write("changed", "22")
			a.Write("d/new", "2")
			a.Remove("old")
			a.Push(store)
			a.Write("d/new", "3")
			a.Push(store)
			for i := range pushes {
				b.Write("of-b", fmt.Sprint(i))
				b.Push(before)
			}
			st, err := a.Syncer(before).Status(t.Context())
			testkit.Must(t, err)
			testkit.Equal(t, "status: rolled back", st.RolledBack, true)
			tree := a.List()
			for _, op := range treetest.PushAndPull() {
				r, err := op(a.Syncer(before), t.Context())
				testkit.WantCode(t, err, schemas.CodeConflict)
				testkit.Equal(t, "rolled back", r.RolledBack, true)
				testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict{{Path: "changed", Local: "added", Remote: "added"}})
				testkit.Equal(t, "folder", a.List(), tree)
			}
			a.Pull(before, treetest.OnConflict(plan.ConflictLocal))
			a.Want("changed", "22")
			a.Want("d/new", "3")
			a.Want("old", "1") // the store has it, and nothing is deleted there either
			r := a.Push(before)
			testkit.Equal(t, "rolled back, after the push", r.RolledBack, false)
			b.Pull(before)
			treetest.Same(t, a, b)
		}
	})
}

// TestStoreBegunAnewDeletesNothing has another folder store its own workspace in place of one that was removed. Sync 6.
func TestStoreBegunAnewDeletesNothing(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("of-a", "1")
		a.Push(store, o)
		anew := &storetest.Memory{}
		b.Write("of-b", "1")
		b.Push(anew, o)
		r := a.Pull(anew)
		testkit.Equal(t, "rolled back", r.RolledBack, true)
		a.Want("of-a", "1")
		a.Want("of-b", "1")
	})
}

// TestLaterStateFollows pulls after many pushes, garbage collections, a restore, and the work of another tool: the store was not rolled
// back, and deletions are carried. Sync 6.
func TestLaterStateFollows(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("0", "")
		first := a.Push(store, o).Version
		b.Pull(store)
		pull := func(what string) {
			t.Helper()
			r := b.Pull(store)
			testkit.Equal(t, what+": notes", r.Notes, []string(nil))
			treetest.Same(t, a, b)
		}
		for _, n := range []int{1, 3, state.MaxLineage, state.MaxLineage + 9} {
			for i := range n {
				a.Remove(fmt.Sprint(i))
				a.Write(fmt.Sprint(i+1), fmt.Sprint(n))
				a.Push(store, func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 50, Grace: 1} })
			}
			pull(fmt.Sprint(n, " pushes"))
		}
		if layoutOf(o) == state.Packed {
			_, err := a.Syncer(store).Restore(t.Context(), first)
			if schemas.CodeOf(err) != schemas.CodeNotFound { // it may have been removed
				testkit.Must(t, err)
			}
			pull("a restore")
			return
		}
		treetest.PutState(t, store, []byte(`{"version":"1.0","last_synced_at":1767323045,"files":[]}`))
		a.Pull(store)
		a.Write("more", "")
		a.Push(store)
		pull("another tool")
	})
}
