package syncer_test

import (
	"os"
	"slices"
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

func TestOnConflict(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		begin := func(t *testing.T) (a, b *treetest.Tree, store objectstore.Store) {
			a, b, store = treetest.New(t), treetest.New(t), &storetest.Memory{}
			a.Write("f", "base")
			a.Write("other", "1")
			a.Push(store, o)
			b.Pull(store)
			a.Write("f", "from a")
			a.Push(store)
			b.Write("f", "from b!")
			b.Write("other", "2")
			return a, b, store
		}
		t.Run("fail", func(t *testing.T) {
			_, b, store := begin(t)
			for _, op := range treetest.PushAndPull() {
				r, err := op(b.Syncer(store), t.Context())
				testkit.WantCode(t, err, schemas.CodeConflict)
				testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict{{Path: "f", Local: "changed", Remote: "changed"}})
				testkit.Equal(t, "changed", r.Changed, false)
			}
			b.Want("f", "from b!")
		})
		t.Run("push local", func(t *testing.T) {
			a, b, store := begin(t)
			b.Push(store, treetest.OnConflict(plan.ConflictLocal))
			a.Pull(store)
			a.Want("f", "from b!")
			a.Want("other", "2")
		})
		t.Run("pull remote", func(t *testing.T) {
			_, b, store := begin(t)
			b.Pull(store, treetest.OnConflict(plan.ConflictRemote))
			b.Want("f", "from a")
			b.Want("other", "2")
		})
		t.Run("pull local", func(t *testing.T) {
			a, b, store := begin(t)
			b.Pull(store, treetest.OnConflict(plan.ConflictLocal))
			b.Carry(store, a) // what was kept is now a change in the folder
			a.Want("f", "from b!")
		})
		t.Run("pull both", func(t *testing.T) {
			a, b, store := begin(t)
			r := b.Pull(store, treetest.OnConflict(plan.ConflictBoth))
			b.Want("f", "from b!")
			b.Want("f.conflict-"+r.Version, "from a")
			b.Carry(store, a)
		})
		t.Run("push both", func(t *testing.T) {
			a, b, store := begin(t)
			r := b.Push(store, treetest.OnConflict(plan.ConflictBoth))
			a.Pull(store)
			b.Pull(store)
			treetest.Same(t, a, b)
			a.Want("f", "from b!")
			testkit.Equal(t, "number of paths", len(a.List()), 3)
			testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict{{Path: "f", Local: "changed", Remote: "changed", Kept: "both"}})
		})
	})
}

func TestDeletionConflictsWithRemoteChange(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "base")
	a.Push(store)
	b.Pull(store)
	a.Write("f", "more")
	a.Push(store)
	b.Remove("f")
	_, err := b.Syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeConflict)
	b.Pull(store, treetest.OnConflict(plan.ConflictBoth))
	b.Want("f", "more")
}

func TestFileInPlaceOfChangedFolderConflicts(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("d/f", "x")
	a.Push(store)
	b.Pull(store)
	a.Remove("d")
	a.Write("d", "a file")
	a.Push(store)
	b.Write("d/new", "news")
	for _, op := range treetest.PushAndPull() {
		_, err := op(b.Syncer(store), t.Context())
		testkit.WantCode(t, err, schemas.CodeConflict)
	}
	b.Pull(store, treetest.OnConflict(plan.ConflictRemote))
	treetest.Same(t, a, b)
}

// Names that are equal in all that the name of a conflict has room for: each conflict keeps both sides.
func TestConflictNamesStayApart(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		for _, op := range []string{"push", "pull"} {
			t.Run(op, func(t *testing.T) {
				a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
				long := strings.Repeat("n", state.MaxName-1)
				names := []string{long + "1", long + "2"}
				for _, n := range names {
					a.Write(n, "base")
				}
				a.Push(store, o)
				b.Pull(store)
				for _, n := range names {
					a.Write(n, "from a "+n)
					b.Write(n, "from b! "+n)
				}
				a.Push(store)
				if op == "push" {
					b.Push(store, treetest.OnConflict(plan.ConflictBoth))
				} else {
					b.Pull(store, treetest.OnConflict(plan.ConflictBoth))
					b.Push(store)
				}
				a.Pull(store)
				b.Pull(store)
				treetest.Same(t, a, b)
				entries, err := os.ReadDir(a.Dir)
				testkit.Must(t, err)
				var contents []string
				for _, e := range entries {
					if strings.HasPrefix(e.Name(), "nnn") {
						contents = append(contents, a.Read(e.Name()))
					}
				}
				slices.Sort(contents)
				testkit.Equal(t, "contents", contents, []string{"from a " + names[0], "from a " + names[1], "from b! " + names[0], "from b! " + names[1]})
			})
		}
	})
}
