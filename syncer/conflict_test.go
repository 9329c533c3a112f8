package syncer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

func TestConflicts(t *testing.T) {
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
				if !errors.Is(err, schemas.ErrConflict) || len(r.Conflicts) != 1 || r.Conflicts[0].Path != "f" || r.Changed {
					t.Errorf("%+v, %v", r, err)
				}
			}
			if b.read("f") != "from b!" {
				t.Error("the folder's side is lost")
			}
		})
		t.Run("push local", func(t *testing.T) {
			a, b, store := begin(t)
			b.push(store, on(syncer.ConflictLocal))
			a.pull(store)
			if a.read("f") != "from b!" || a.read("other") != "2" {
				t.Error(a.read("f"))
			}
		})
		t.Run("pull remote", func(t *testing.T) {
			_, b, store := begin(t)
			b.pull(store, on(syncer.ConflictRemote))
			if b.read("f") != "from a" || b.read("other") != "2" {
				t.Error(b.read("f"))
			}
		})
		t.Run("pull local", func(t *testing.T) {
			a, b, store := begin(t)
			b.pull(store, on(syncer.ConflictLocal))
			b.push(store) // what was kept is a change of the folder's from now on
			a.pull(store)
			sameTrees(t, a, b)
			if a.read("f") != "from b!" {
				t.Error(a.read("f"))
			}
		})
		t.Run("pull both", func(t *testing.T) {
			a, b, store := begin(t)
			r := b.pull(store, on(syncer.ConflictBoth))
			if b.read("f") != "from b!" || b.read("f.conflict-"+r.Version) != "from a" {
				t.Fatal(strings.Join(b.listing(), "\n"))
			}
			b.push(store)
			a.pull(store)
			sameTrees(t, a, b)
		})
		t.Run("push both", func(t *testing.T) {
			a, b, store := begin(t)
			r, err := b.syncer(store, on(syncer.ConflictBoth)).Push(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a.pull(store)
			b.pull(store)
			sameTrees(t, a, b)
			if a.read("f") != "from b!" || len(a.listing()) != 3 || len(r.Conflicts) != 1 {
				t.Error(strings.Join(a.listing(), "\n"))
			}
		})
	})
}

func TestDeletedHereChangedThere(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("f", "base")
	a.push(store)
	b.pull(store)
	a.write("f", "more")
	a.push(store)
	b.remove("f")
	if _, err := b.syncer(store).Push(t.Context()); !errors.Is(err, schemas.ErrConflict) {
		t.Fatal(err)
	}
	b.pull(store, on(syncer.ConflictBoth))
	if b.read("f") != "more" {
		t.Error("the change is lost")
	}
}

func TestAFileInPlaceOfAFolderWithNews(t *testing.T) {
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
		if _, err := op(); !errors.Is(err, schemas.ErrConflict) {
			t.Fatal(err)
		}
	}
	b.pull(store, on(syncer.ConflictRemote))
	sameTrees(t, a, b)
}
