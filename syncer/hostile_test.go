package syncer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/state/statetest"
)

func TestPushAndPullRefuseHostileStates(t *testing.T) {
	for name, data := range statetest.Hostile() {
		t.Run(name, func(t *testing.T) {
			up := newTree(t)
			up.mkdir("root")
			root := &tree{t, up.path("root")}
			root.write("mine", "x")
			store := newStore()
			_, err := store.Put(t.Context(), state.ReservedName,
				objectstore.Content{Reader: strings.NewReader(data), Size: int64(len(data))}, objectstore.Condition{})
			root.must(err)
			for _, op := range []func() (*syncer.Report, error){
				func() (*syncer.Report, error) { return root.limited(store).Pull(t.Context()) },
				func() (*syncer.Report, error) { return root.limited(store).Push(t.Context()) },
			} {
				_, err = op()
				if c := schemas.CodeOf(err); c != schemas.CodeInvalidArgument && c != schemas.CodeTooLarge {
					t.Errorf("code = %q, want invalid_argument or too_large (error: %v)", c, err)
				}
				if err != nil && len(err.Error()) > 1000 {
					t.Errorf("the error has %d bytes, want at most 1000", len(err.Error()))
				}
			}
			if got := up.listing(); len(got) != 2 {
				t.Errorf("paths = %q, want the root and its one file", got)
			}
		})
	}
}

func (w *tree) limited(store syncer.Store) *syncer.Syncer {
	return w.syncer(store, func(c *syncer.Config) { c.Limits.Entries = 1000 })
}

// TestPullStaysInsideWhenFolderBecomesSymlink replaces a folder by a symlink out of the root during a pull.
func TestPullStaysInsideWhenFolderBecomesSymlink(t *testing.T) {
	outside, a, b, store := newTree(t), newTree(t), newTree(t), newStore()
	a.write("d/f", "1")
	a.push(store)
	b.pull(store)
	a.write("d/f", "22")
	a.write("d/g", "new")
	a.push(store)
	swapped := false
	_, err := b.syncer(store, func(c *syncer.Config) {
		c.Progress = func(p syncer.Progress) {
			if p.Phase == "download" && !swapped {
				swapped = true
				b.rename("d", "moved")
				b.link(outside.dir, "d")
			}
		}
	}).Pull(t.Context())
	if err == nil {
		t.Error("the pull succeeded, want an error")
	}
	if got := outside.listing(); len(got) > 0 {
		t.Errorf("outside the root: %q, want nothing", got)
	}
}

func TestPullKeepsFilesChangedMeanwhile(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("f", "1")
	a.push(store)
	b.pull(store)
	a.write("f", "22")
	a.write("new", "from a")
	a.push(store)
	done := false
	_, err := b.syncer(store, func(c *syncer.Config) {
		c.Progress = func(p syncer.Progress) {
			if p.Phase == "download" && !done {
				done = true
				b.write("f", "mine")
				b.write("new", "mine too")
			}
		}
	}).Pull(t.Context())
	testkit.WantCode(t, err, schemas.CodeConflict)
	b.want("f", "mine")
	b.want("new", "mine too")
}

func TestPullRefusesDamagedContent(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		a.write("f", "the content")
		a.push(store, o)
		for info, err := range store.List(t.Context(), "") {
			a.must(err)
			if info.Key == state.ReservedName {
				continue
			}
			data, _, err := store.Get(t.Context(), info.Key, objectstore.Range{}, nil)
			a.must(err)
			data[0] ^= 1
			_, err = store.Put(t.Context(), info.Key, objectstore.Content{Reader: bytes.NewReader(data), Size: info.Size}, objectstore.Condition{})
			a.must(err)
		}
		if _, err := b.syncer(store).Pull(t.Context()); err == nil {
			t.Error("the pull succeeded, want an error")
		}
		b.wantExists("f", false)
		b.wantNoLeftovers()
	})
}

func FuzzDecodeState(f *testing.F) {
	for _, s := range statetest.Hostile() {
		f.Add([]byte(s))
	}
	w := newTree(f)
	w.write("a/b", "x")
	store := newStore()
	w.push(store)
	data, _, err := store.Get(f.Context(), state.ReservedName, objectstore.Range{}, nil)
	w.must(err)
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
		up := newTree(t)
		up.mkdir("root")
		store := newStore()
		_, err = store.Put(t.Context(), state.ReservedName, objectstore.Content{Reader: bytes.NewReader(data), Size: int64(len(data))}, objectstore.Condition{})
		up.must(err)
		_, _ = (&tree{t, up.path("root")}).limited(store).Pull(t.Context())
		entries, err := os.ReadDir(up.dir)
		up.must(err)
		if len(entries) != 1 {
			t.Fatalf("entries = %v, want the root alone", entries)
		}
	})
}
