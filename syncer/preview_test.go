package syncer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestPreviewIsWhatHappens previews pushes and pulls, with conflicts settled in each way: neither side changes, and what follows does
// what was said. Sync 14.
func TestPreviewIsWhatHappens(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		for _, on := range []plan.OnConflict{plan.ConflictFail, plan.ConflictLocal, plan.ConflictRemote, plan.ConflictBoth} {
			a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			for i := range 6 {
				a.Write(fmt.Sprint("d", i, "/f"), "1")
			}
			a.Push(store, o)
			b.Pull(store)
			a.Write("d0/f", "a")
			a.Write("d1/f", "a")
			a.Remove("d2")
			a.Push(store)
			b.Write("d0/f", "bb")
			b.Write("d3/f", "bb")
			b.Remove("d4")
			b.Write("new", "b")
			settle := treetest.OnConflict(on)
			for _, p := range []struct {
				name    string
				preview func(*syncer.Syncer) (*syncer.Preview, error)
				do      func(*syncer.Syncer) (*syncer.Report, error)
			}{
				{
					"push", func(s *syncer.Syncer) (*syncer.Preview, error) { return s.PreviewPush(t.Context()) },
					func(s *syncer.Syncer) (*syncer.Report, error) { return s.Push(t.Context()) },
				},
				{
					"pull", func(s *syncer.Syncer) (*syncer.Preview, error) { return s.PreviewPull(t.Context(), "") },
					func(s *syncer.Syncer) (*syncer.Report, error) { return s.Pull(t.Context()) },
				},
			} {
				files, objects := b.ListWithTimes(), treetest.Objects(t, store)
				said, err := p.preview(b.Syncer(store, settle))
				testkit.Equal(t, "the folder", b.ListWithTimes(), files)
				testkit.Equal(t, "the store", treetest.Objects(t, store), objects)
				did, doErr := p.do(b.Syncer(store, settle))
				what := fmt.Sprint(p.name, " with ", on)
				testkit.Equal(t, "code of "+what, schemas.CodeOf(err), schemas.CodeOf(doErr))
				testkit.Equal(t, "conflicts of "+what, said.Conflicts, did.Conflicts)
				if doErr != nil {
					continue
				}
				count := map[string]int{}
				for _, c := range said.Changes {
					if c.Kind == "file" || c.What == "deleted" {
						count[c.What]++
					}
				}
				if p.name == "push" && on == plan.ConflictBoth {
					count["added"]-- // the side that is kept beside is in the store already
				}
				testkit.Equal(t, "files of "+what, []int{count["added"] + count["changed"], count["deleted"]},
					[]int{did.Uploaded + did.Downloaded, did.Deleted})
			}
		}
	})
}

// TestDeletionsAreAskedFor empties each side: the other keeps everything when the check refuses. A preview asks, too. Sync 14.
func TestDeletionsAreAskedFor(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		for i := range 12 {
			a.Write(fmt.Sprint("d/", i), "1")
		}
		a.Push(store, o)
		b.Pull(store)
		var asked syncer.Deletion
		refused := errors.New("refused")
		refuse := func(c *syncer.Config) {
			c.MayDelete = func(d syncer.Deletion) error {
				asked = d
				return refused
			}
		}
		check := func(what string, err error, want syncer.Deletion) {
			t.Helper()
			if !errors.Is(err, refused) {
				t.Errorf("%s: %v, want it refused", what, err)
			}
			testkit.Equal(t, what+": asked", asked, want)
		}
		for i := range 11 {
			a.Remove(fmt.Sprint("d/", i))
		}
		a.Write("new", "1")
		objects := treetest.Objects(t, store)
		_, err := a.Syncer(store, refuse).PreviewPush(t.Context())
		check("a preview", err, syncer.Deletion{Side: "store", Deleted: 11, Added: 1, Of: 12})
		_, err = a.Syncer(store, refuse).Push(t.Context())
		check("a push", err, syncer.Deletion{Side: "store", Deleted: 11, Added: 1, Of: 12})
		testkit.Equal(t, "the store", treetest.Objects(t, store), objects)
		a.Push(store)
		_, err = b.Syncer(store, refuse).Pull(t.Context())
		check("a pull", err, syncer.Deletion{Side: "folder", Deleted: 11, Added: 1, Of: 12})
		b.WantExists("d/0", true)
		b.Pull(store)
		treetest.Same(t, a, b)
	})
}
