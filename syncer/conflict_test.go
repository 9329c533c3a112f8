package syncer_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

func TestOnConflict(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		begin := func(t *testing.T) (a, b *tree, store syncer.Store) {
			a, b, store = newTree(t), newTree(t), newStore()
			a.write("f", "base")
			a.write("other", "1")
			a.push(store, o)
			b.pull(store)
			a.write("f", "from a")
			a.push(store)
			b.write("f", "from b!")
			b.write("other", "2")
			return a, b, store
		}
		t.Run("fail", func(t *testing.T) {
			_, b, store := begin(t)
			for _, op := range []func() (*syncer.Report, error){
				func() (*syncer.Report, error) { return b.syncer(store).Push(t.Context()) },
				func() (*syncer.Report, error) { return b.syncer(store).Pull(t.Context()) },
			} {
				r, err := op()
				testkit.WantCode(t, err, schemas.CodeConflict)
				testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict{{Path: "f", Local: "changed", Remote: "changed"}})
				testkit.Equal(t, "changed", r.Changed, false)
			}
			b.want("f", "from b!")
		})
		t.Run("push local", func(t *testing.T) {
			a, b, store := begin(t)
			b.push(store, on(syncer.ConflictLocal))
			a.pull(store)
			a.want("f", "from b!")
			a.want("other", "2")
		})
		t.Run("pull remote", func(t *testing.T) {
			_, b, store := begin(t)
			b.pull(store, on(syncer.ConflictRemote))
			b.want("f", "from a")
			b.want("other", "2")
		})
		t.Run("pull local", func(t *testing.T) {
			a, b, store := begin(t)
			b.pull(store, on(syncer.ConflictLocal))
			b.push(store) // what was kept is now a change in the folder
			a.pull(store)
			sameTrees(t, a, b)
			a.want("f", "from b!")
		})
		t.Run("pull both", func(t *testing.T) {
			a, b, store := begin(t)
			r := b.pull(store, on(syncer.ConflictBoth))
			b.want("f", "from b!")
			b.want("f.conflict-"+r.Version, "from a")
			b.push(store)
			a.pull(store)
			sameTrees(t, a, b)
		})
		t.Run("push both", func(t *testing.T) {
			a, b, store := begin(t)
			r := b.push(store, on(syncer.ConflictBoth))
			a.pull(store)
			b.pull(store)
			sameTrees(t, a, b)
			a.want("f", "from b!")
			testkit.Equal(t, "number of paths", len(a.listing()), 3)
			testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict{{Path: "f", Local: "changed", Remote: "changed", Kept: "both"}})
		})
	})
}

func TestDeletionConflictsWithRemoteChange(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("f", "base")
	a.push(store)
	b.pull(store)
	a.write("f", "more")
	a.push(store)
	b.remove("f")
	_, err := b.syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeConflict)
	b.pull(store, on(syncer.ConflictBoth))
	b.want("f", "more")
}

func TestFileInPlaceOfChangedFolderConflicts(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("d/f", "x")
	a.push(store)
	b.pull(store)
	a.remove("d")
	a.write("d", "a file")
	a.push(store)
	b.write("d/new", "news")
	for _, op := range []func() (*syncer.Report, error){
		func() (*syncer.Report, error) { return b.syncer(store).Push(t.Context()) },
		func() (*syncer.Report, error) { return b.syncer(store).Pull(t.Context()) },
	} {
		_, err := op()
		testkit.WantCode(t, err, schemas.CodeConflict)
	}
	b.pull(store, on(syncer.ConflictRemote))
	sameTrees(t, a, b)
}
