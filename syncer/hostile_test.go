package syncer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

func TestPushAndPullRefuseHostileStates(t *testing.T) {
	for name, data := range statetest.Hostile() {
		t.Run(name, func(t *testing.T) {
			up := treetest.New(t)
			root, store := up.Root(), &storetest.Memory{}
			root.Write("mine", "x")
			treetest.PutState(t, store, []byte(data))
			for _, op := range treetest.PushAndPull() {
				_, err := op(limited(root, store), t.Context())
				if c := schemas.CodeOf(err); c != schemas.CodeInvalidArgument && c != schemas.CodeTooLarge {
					t.Errorf("code = %q, want invalid_argument or too_large (error: %v)", c, err)
				}
				testkit.Contains(t, "the error", fmt.Sprint(err), "the state at test://store")
				if err != nil && len(err.Error()) > 1000 {
					t.Errorf("the error has %d bytes, want at most 1000", len(err.Error()))
				}
			}
			if got := up.List(); len(got) != 2 {
				t.Errorf("paths = %q, want the root and its one file", got)
			}
		})
	}
}

func limited(w *treetest.Tree, store objectstore.Store) *syncer.Syncer {
	return w.Syncer(store, func(c *syncer.Config) { c.Limits.Entries = 1000 })
}

// atFirst does something once, when a phase begins.
func atFirst(phase string, do func()) treetest.Option {
	var once sync.Once
	return func(c *syncer.Config) {
		c.Progress = func(p syncer.Progress) {
			if p.Phase == phase {
				once.Do(do)
			}
		}
	}
}

// TestPullStaysInsideWhenFolderBecomesSymlink replaces a folder by a symlink out of the root during a pull.
func TestPullStaysInsideWhenFolderBecomesSymlink(t *testing.T) {
	outside, a, b, store := treetest.New(t), treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("d/f", "1")
	a.Push(store)
	b.Pull(store)
	a.Write("d/f", "22")
	a.Write("d/g", "new")
	a.Push(store)
	_, err := b.Syncer(store, atFirst("download", func() {
		b.Must(os.Rename(b.Path("d"), b.Path("moved")))
		b.Symlink(outside.Dir, "d")
	})).Pull(t.Context())
	if err == nil {
		t.Error("the pull succeeded, want an error")
	}
	if got := outside.List(); len(got) > 0 {
		t.Errorf("outside the root: %q, want nothing", got)
	}
}

func TestPullKeepsFilesChangedMeanwhile(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Push(store)
	b.Pull(store)
	a.Write("f", "22")
	a.Write("new", "from a")
	a.Push(store)
	_, err := b.Syncer(store, atFirst("download", func() {
		b.Write("f", "mine")
		b.Write("new", "mine too")
	})).Pull(t.Context())
	testkit.WantCode(t, err, schemas.CodeConflict)
	b.Want("f", "mine")
	b.Want("new", "mine too")
}

func TestPullRefusesDamagedContent(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "the content")
		a.Push(store, o)
		for info, err := range store.List(t.Context(), "") {
			a.Must(err)
			if info.Key == state.ReservedName {
				continue
			}
			data, _, err := store.Get(t.Context(), info.Key, objectstore.Range{}, nil)
			a.Must(err)
			data[0] ^= 1
			_, err = store.Put(t.Context(), info.Key, objectstore.Bytes(data), objectstore.Condition{})
			a.Must(err)
		}
		if _, err := b.Syncer(store).Pull(t.Context()); err == nil {
			t.Error("the pull succeeded, want an error")
		}
		b.WantExists("f", false)
		b.WantNoLeftovers()
	})
}

func FuzzDecodeState(f *testing.F) {
	for _, s := range statetest.Hostile() {
		f.Add([]byte(s))
	}
	w := treetest.New(f)
	w.Write("a/b", "x")
	store := &storetest.Memory{}
	w.Push(store)
	data, _, err := store.Get(f.Context(), state.ReservedName, objectstore.Range{}, nil)
	w.Must(err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := state.Decode(data, state.Limits{Entries: 1000, StateBytes: 1 << 20, FileBytes: 1 << 20, TotalBytes: 1 << 21})
		if err != nil {
			return
		}
		for _, n := range s.Nodes {
			if !filepath.IsLocal(n.Path) || filepath.Clean(n.Path) != n.Path {
				t.Fatalf("Decode accepted the path %q", n.Path)
			}
		}
		if _, err := state.Decode(s.Encode(), state.Limits{}); err != nil {
			t.Fatalf("Decode refused what Encode wrote: %v\n%s", err, s.Encode())
		}
		// A pull of it, from a store that has nothing else, stays in the root.
		up := treetest.New(t)
		store := &storetest.Memory{}
		treetest.PutState(t, store, data)
		_, _ = limited(up.Root(), store).Pull(t.Context())
		up.WantOnlyRoot()
	})
}
