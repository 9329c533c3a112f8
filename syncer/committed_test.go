package syncer_test

import (
	"errors"
	"fmt"
	"os"
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
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// TestPushStoresOnlyWhatAPullReads pushes trees over a limit, most of which arise by a merge: nothing is stored, and the workspace
// can still be pulled. Sync 1.
func TestPushStoresOnlyWhatAPullReads(t *testing.T) {
	for name, c := range map[string]struct {
		limits state.Limits
		change func(b *treetest.Tree)
	}{
		"a file of 65 GiB": {state.Limits{}, func(b *treetest.Tree) {
			f, err := os.Create(b.Path("sparse"))
			b.Must(err)
			b.Must(errors.Join(f.Truncate(65<<30), f.Close()))
		}},
		"entries": {state.Limits{Entries: 10}, func(b *treetest.Tree) {
			for i := range 6 {
				b.Write(fmt.Sprint("b", i), "x")
			}
		}},
		"bytes of all files": {state.Limits{TotalBytes: 10}, func(b *treetest.Tree) { b.Write("b", "12345678") }},
		"bytes of the state": {state.Limits{StateBytes: 5000}, func(b *treetest.Tree) {
			for i := range 9 {
				b.Write(fmt.Sprint(i, strings.Repeat("n", 240)), "x")
			}
		}},
		"a long path": {state.Limits{}, func(b *treetest.Tree) {
			dir, err := os.OpenRoot(b.Dir)
			b.Must(err)
			for range 20 {
				name := strings.Repeat("d", 220)
				b.Must(dir.Mkdir(name, 0o755))
				next, err := dir.OpenRoot(name)
				b.Must(errors.Join(err, dir.Close()))
				dir = next
			}
			b.Must(dir.Close())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
				limited := func(cfg *syncer.Config) { cfg.Limits = c.limits }
				a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
				for i := range 6 {
					a.Write(fmt.Sprint("a", i), "x")
				}
				a.Push(store, o, limited)
				before := treetest.Objects(t, store)
				c.change(b)
				_, err := b.Syncer(store, limited).Push(t.Context())
				if code := schemas.CodeOf(err); code != schemas.CodeTooLarge && code != schemas.CodeInvalidArgument {
					t.Errorf("code = %q, want too_large or invalid_argument (error: %v)", code, err)
				}
				testkit.Equal(t, "objects", treetest.Objects(t, store), before)
				seen := treetest.New(t)
				seen.Pull(store, limited)
				treetest.Same(t, a, seen)
			})
		})
	}
}

// TestConflictNameInUseIsRefused keeps both sides of a conflict where the folder has another file of that name. Sync 1.
func TestConflictNameInUseIsRefused(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "base")
		a.Push(store, o)
		b.Pull(store)
		a.Write("f", "from a")
		version := a.Push(store).Version
		b.Write("f", "from b!")
		b.Write("f.conflict-"+version, "b's own")
		_, err := b.Syncer(store, treetest.OnConflict(plan.ConflictBoth)).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		seen := treetest.New(t)
		seen.Pull(store)
		treetest.Same(t, a, seen)
		b.Write("f.conflict-"+version, "from a")
		b.Push(store, treetest.OnConflict(plan.ConflictBoth))
		seen.Pull(store)
		treetest.Same(t, b, seen)
	})
}

// TestOutsideLinkReplacesNothing pushes symlinks that lead out in place of a file and of a folder: a folder without OutsideLinks
// keeps what it has, and reports them. Sync 7.
func TestOutsideLinkReplacesNothing(t *testing.T) {
	outside := func(cfg *syncer.Config) { cfg.OutsideLinks = true }
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Write("d/in/f", "2")
		a.Write("g", "3")
		a.Push(store, o)
		b.Pull(store)
		for name, target := range map[string]string{"f": "/etc/passwd\x1b[2J", "d": "../x", "new": "g/../../x"} {
			a.Remove(name)
			a.Symlink(target, name)
		}
		a.Push(store, outside)
		b.Write("d/in/more", "4")
		b.Write("g", "33")
		want := b.List()
		skipped := []worktree.Skipped{
			{Path: "d", Reason: `a symlink out of the folder: "../x"`},
			{Path: "f", Reason: `a symlink out of the folder: "/etc/passwd\x1b[2J"`},
			{Path: "new", Reason: `a symlink out of the folder: "g/../../x"`},
		}
		for range 2 {
			testkit.Equal(t, "skipped by the pull", b.Pull(store).Skipped, skipped)
			testkit.Equal(t, "folder after the pull", b.List(), want)
			testkit.Equal(t, "skipped by the push", b.Push(store).Skipped, skipped)
			testkit.Equal(t, "folder after the push", b.List(), want)
		}
		a.Pull(store, outside)
		a.Want("g", "33")
		for name, target := range map[string]string{"f": "/etc/passwd\x1b[2J", "d": "../x", "new": "g/../../x"} {
			got, err := os.Readlink(a.Path(name))
			a.Must(err)
			testkit.Equal(t, name, got, target)
		}
	})
}

// TestOwnNamesOfOtherSystemsAreSkipped has files with names that are Sluice's own where the case of letters does not matter. Sync 7.
func TestOwnNamesOfOtherSystemsAreSkipped(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	for _, name := range []string{".Sandbox-State.index", ".\u017fandbox-state", ".sandbox\u200c-state", ".Sandbox-Status", "d/.Sandbox-State"} {
		a.Write(name, "x")
	}
	r := a.Push(store)
	testkit.Equal(t, "number skipped", len(r.Skipped), 3)
	b.Pull(store)
	b.WantExists(".Sandbox-State.index", false)
	b.Want(".Sandbox-Status", "x")
	b.Want("d/.Sandbox-State", "x")
}

// TestVersionsOfOthersAreLeftAlone has objects beside the versions whose names are no IDs. Sync 7.
func TestVersionsOfOthersAreLeftAlone(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Push(store)
	for _, id := range []string{"0000", "99999999T000000.000000Z-1", "x/../../y"} {
		_, err := store.Put(t.Context(), state.VersionPrefix+id, objectstore.Bytes([]byte("x")), objectstore.Condition{})
		a.Must(err)
	}
	a.Write("f", "2")
	a.Push(store)
	versions, err := a.Syncer(store).Versions(t.Context())
	a.Must(err)
	testkit.Equal(t, "number of versions", len(versions), 2)
	_, err = a.Syncer(store, func(c *syncer.Config) { c.Retention.Keep = 1 }).Collect(t.Context())
	a.Must(err)
}

// TestFileReplacesNoFolderOfIgnoredPaths pushes a file in place of a folder in which the store has a path that this folder ignores. Sync 1.
func TestFileReplacesNoFolderOfIgnoredPaths(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("build/out", "1")
		a.Push(store, o)
		b.Pull(store)
		b.Write(".sandboxignore", "build/out\n")
		b.Remove("build")
		b.Write("build", "a file")
		_, err := b.Syncer(store).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeConflict)
		seen := treetest.New(t)
		seen.Pull(store)
		treetest.Same(t, a, seen)
		b.Remove("build")
		b.Push(store)
		seen.Pull(store)
		seen.Want("build/out", "1")
	})
}
