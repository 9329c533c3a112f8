package syncer_test

import (
	"bytes"
	"fmt"
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

// twoVersions pushes two versions of a folder, and returns the name of the first.
func twoVersions(t *testing.T) (a *treetest.Tree, store *storetest.Memory, first string) {
	t.Helper()
	a, store = treetest.New(t), &storetest.Memory{}
	a.Write("d/f", "1")
	a.Write("d/large", strings.Repeat("l", 9<<20))
	a.Write("gone", "1")
	a.Write("same", "1")
	a.Push(store)
	versions, err := a.Syncer(store).Versions(t.Context())
	testkit.Must(t, err)
	a.Write("d/f", "22")
	a.Write("new", "2")
	a.Remove("gone")
	a.Remove("d/large")
	a.Push(store)
	return a, store, versions[0].ID
}

// TestBrowseVersions lists, compares and reads what is stored, now and in an earlier version. Sync 14.
func TestBrowseVersions(t *testing.T) {
	a, store, first := twoVersions(t)
	s := a.Syncer(store)
	list := func(at, path string) (paths []string) {
		t.Helper()
		entries, err := s.List(t.Context(), at, path)
		testkit.Must(t, err)
		for _, e := range entries {
			paths = append(paths, fmt.Sprint(e.Path, " ", e.Kind, " ", e.Size))
		}
		return paths
	}
	testkit.Equal(t, "list", list("", ""), []string{"d folder 0", "d/f file 2", "new file 1", "same file 1"})
	testkit.Equal(t, "list of the first version's folder", list(first, "d/"), []string{"d folder 0", "d/f file 1", "d/large file 9437184"})
	changes, err := s.Diff(t.Context(), first, "")
	testkit.Must(t, err)
	testkit.Equal(t, "changes", changes, []syncer.Change{
		{Path: "d/f", What: "changed", Kind: "file", Size: 2}, {Path: "d/large", What: "deleted", Kind: "file"},
		{Path: "gone", What: "deleted", Kind: "file"}, {Path: "new", What: "added", Kind: "file", Size: 1},
	})
	read := func(at, path string) (string, error) {
		var out bytes.Buffer
		err := s.Copy(t.Context(), at, path, &out)
		return out.String(), err
	}
	for at, want := range map[string]string{"": "22", first: "1"} {
		got, err := read(at, "d/f")
		testkit.Must(t, err)
		testkit.Equal(t, "d/f at "+at, got, want)
	}
	large, err := read(first, "d/large")
	testkit.Must(t, err)
	testkit.Equal(t, "bytes of a large file", len(large), 9<<20)
	_, err = read("", "gone")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	_, err = read("", "d")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	_, err = s.List(t.Context(), "", "none")
	testkit.WantCode(t, err, schemas.CodeNotFound)
}

// TestCopyOfPlainIsVerified reads files under their own paths, and one that another tool has replaced. Sync 14.
func TestCopyOfPlainIsVerified(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	large := strings.Repeat("large", 2<<20)
	a.Write("large", large)
	a.Write("empty", "")
	a.Push(store, treetest.Layout(state.Plain))
	for name, want := range map[string]string{"large": large, "empty": ""} {
		var out bytes.Buffer
		testkit.Must(t, a.Syncer(store).Copy(t.Context(), "", name, &out))
		testkit.Equal(t, name+" is what was pushed", out.String() == want, true)
	}
	_, err := store.Put(t.Context(), "large", objectstore.Bytes([]byte("X"+large[1:])), objectstore.Condition{})
	testkit.Must(t, err)
	testkit.WantCode(t, a.Syncer(store).Copy(t.Context(), "", "large", &bytes.Buffer{}), schemas.CodeConflict)
	_, err = a.Syncer(store).List(t.Context(), "2026-01-01T00:00:00Z", "")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

// TestPullAtLeavesTheStore brings an earlier version into folders that are empty, in sync, and changed. The next pull brings the newest
// again, and a push undoes nothing. Sync 14.
func TestPullAtLeavesTheStore(t *testing.T) {
	a, store, first := twoVersions(t)
	newest := a.List()
	for _, b := range []*treetest.Tree{treetest.New(t), a} {
		objects := treetest.Objects(t, store)
		_, err := b.Syncer(store).PullAt(t.Context(), first)
		testkit.Must(t, err)
		b.Want("d/f", "1")
		b.Want("gone", "1")
		b.WantExists("new", false)
		b.Push(store)
		testkit.Equal(t, "the store", treetest.Objects(t, store), objects)
		b.Pull(store)
		testkit.Equal(t, "the folder after a pull", b.List(), newest)
	}
	a.Write("d/f", "mine")
	_, err := a.Syncer(store).PullAt(t.Context(), first)
	testkit.WantCode(t, err, schemas.CodeConflict)
	a.Want("d/f", "mine")
	_, err = a.Syncer(store).PullAt(t.Context(), "2020-01-01T00:00:00Z")
	testkit.WantCode(t, err, schemas.CodeNotFound)

	// A change of the earlier version is one, and merges with what was pushed since.
	b := treetest.New(t)
	_, err = b.Syncer(store).PullAt(t.Context(), first)
	testkit.Must(t, err)
	b.Write("same", "of b")
	b.Push(store)
	b.Pull(store)
	b.Want("same", "of b")
	b.Want("d/f", "22")
	b.WantExists("gone", false)
}

// TestRestoreOfOnePath brings back a file and a folder of an earlier version, and nothing else. What was not pushed is kept. Sync 14.
func TestRestoreOfOnePath(t *testing.T) {
	a, store, first := twoVersions(t)
	restore := func(path string, options ...treetest.Option) error {
		_, err := a.Syncer(store, options...).RestorePath(t.Context(), first, path)
		a.WantNoLeftovers()
		return err
	}
	testkit.Must(t, restore("gone"))
	a.Want("gone", "1")
	a.Want("d/f", "22")
	a.WantExists("d/large", false)
	a.Write("d/own", "o")
	testkit.Must(t, restore("d"))
	a.Want("d/f", "1")
	a.Want("d/own", "o")
	testkit.Equal(t, "bytes of d/large", len(a.Read("d/large")), 9<<20)

	a.Write("d/f", "not pushed")
	testkit.WantCode(t, restore("d/f"), schemas.CodeConflict)
	a.Want("d/f", "not pushed")
	testkit.Must(t, restore("d/f", treetest.OnConflict(plan.ConflictLocal)))
	a.Want("d/f", "not pushed")
	testkit.Must(t, restore("d/f", treetest.OnConflict(plan.ConflictBoth)))
	a.Want("d/f", "not pushed")
	a.Want("d/f.conflict-"+first, "1")
	testkit.Must(t, restore("d/f", treetest.OnConflict(plan.ConflictRemote)))
	a.Want("d/f", "1")

	a.Remove("d")
	a.Write("d", "a file in the way")
	testkit.WantCode(t, restore("d/f"), schemas.CodeConflict)
	a.Want("d", "a file in the way")
	a.Remove("d")
	testkit.Must(t, restore("d/large"))
	a.WantExists("d/f", false)
	testkit.WantCode(t, restore("none"), schemas.CodeNotFound)
	testkit.WantCode(t, restore("../up"), schemas.CodeInvalidArgument)
	b := treetest.New(t)
	a.Carry(store, b)
}
