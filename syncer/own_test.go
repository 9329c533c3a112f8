package syncer_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// Hardening 1: what a process of the folder leaves in the names of Sluice's own files is not read, whatever its size, and is removed.
func TestForgedOwnFilesAreNotRead(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Push(store, treetest.Apart)
	b.Pull(store, treetest.Apart)
	for _, name := range []string{".index", ".journal", ".pushing", ".pulling", ".stored", ".uploads"} {
		b.WantExists(state.ReservedName+name, false)
		f, err := os.Create(b.Path(state.ReservedName + name))
		testkit.Must(t, err)
		testkit.Must(t, f.Truncate(400<<20))
		testkit.Must(t, f.Close())
	}
	b.Write("g", "2")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := b.Push(store, treetest.Apart)
	runtime.ReadMemStats(&after)
	testkit.Equal(t, "files uploaded", r.Uploaded, 1)
	if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
		t.Errorf("the push took %d bytes of memory, want at most 100 MiB", took)
	}
	b.Remove("f")
	b.Push(store, treetest.Apart)
	a.Pull(store, treetest.Apart)
	a.WantExists("f", false)
	a.Want("g", "2")
}

// Hardening 1: a state file that a process has forged takes bounded memory, and nothing but a file can stand in its way.
func TestForgedStateFileIsBounded(t *testing.T) {
	for name, forge := range map[string]func(w *treetest.Tree, path string){
		"long": func(w *treetest.Tree, path string) {
			w.Must(os.WriteFile(path, bytes.Repeat([]byte(`{"files":[`), 40<<17), 0o600))
		},
		"nulls": func(w *treetest.Tree, path string) {
			w.Must(os.WriteFile(path, []byte(`{"version":"1.0","files":[null`+strings.Repeat(",null", 4<<20)+`]}`), 0o600))
		},
		"folder":  func(w *treetest.Tree, path string) { w.Must(os.MkdirAll(filepath.Join(path, "a/b"), 0o755)) },
		"symlink": func(w *treetest.Tree, path string) { w.Must(os.Symlink("/etc/passwd", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			w, store := treetest.New(t), &storetest.Memory{}
			w.Write("f", "1")
			w.Push(store, treetest.Apart)
			testkit.Must(t, os.RemoveAll(w.Path(state.ReservedName)))
			forge(w, w.Path(state.ReservedName))
			w.Write("g", "2")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := w.Syncer(store, treetest.Apart).Push(t.Context())
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 200<<20 {
				t.Errorf("the push took %d bytes of memory, want at most 200 MiB", took)
			}
			if name != "nulls" { // it is a state, with an error that names it
				testkit.Must(t, err)
			} else {
				testkit.WantCode(t, err, schemas.CodeInvalidArgument)
			}
		})
	}
}

// What is kept of a folder does not hold for another one at its path, or for one that was emptied: nothing counts as deleted.
func TestOwnDirIsOfOneFolder(t *testing.T) {
	w, store := treetest.New(t), &storetest.Memory{}
	w.Write("f", "1")
	w.Push(store, treetest.Apart)
	own := w.Dir + treetest.ApartSuffix
	prepared, err := os.ReadFile(w.Path(state.ReservedName))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(own, state.ReservedName+".pushing"), prepared, 0o600)) // as a killed push leaves it
	testkit.Must(t, os.RemoveAll(w.Dir))
	testkit.Must(t, os.Mkdir(w.Dir, 0o755))
	w.Push(store, treetest.Apart)
	w.Pull(store, treetest.Apart)
	w.Want("f", "1")
}

// An interrupted pull of an earlier version has left its journal in the folder: it is taken over once, and never again.
func TestJournalOfAnEarlierVersionIsTakenOver(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Push(store)
	b.Pull(store)
	b.Remove("f") // as between the two steps of replacing it
	journal, err := json.Marshal(map[string]any{"version": "v", "swapped": [][]byte{[]byte("f")}})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(b.Path(state.ReservedName+".journal"), journal, 0o600))
	_, err = b.Syncer(store, treetest.Apart).Push(t.Context())
	testkit.Must(t, err)
	b.WantExists(state.ReservedName+".journal", false)
	c := treetest.New(t)
	c.Pull(store)
	c.Want("f", "1")
}

// A sync without the same OwnDir has gone on after an interrupted pull: what that wrote down holds no more.
func TestOutdatedJournalIsNotTaken(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	next := func(text string, options ...treetest.Option) (version string) {
		a.Write("f", text)
		version = a.Push(store).Version
		b.Pull(store, options...)
		b.Want("f", text)
		return version
	}
	own := b.Dir + treetest.ApartSuffix + "/" + state.ReservedName
	first := next("1", treetest.Apart)
	second := next("2")
	prepared, err := os.ReadFile(b.Path(state.ReservedName))
	testkit.Must(t, err)
	journal, err := json.Marshal(map[string]any{"version": second, "from": first, "moves": []any{map[string]any{"at": []byte("f")}}})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(own+".journal", journal, 0o600)) // as a killed pull of the second version leaves it
	testkit.Must(t, os.WriteFile(own+".pulling", prepared, 0o600))
	next("3")
	next("4", treetest.Apart)
	_, err = os.Stat(own + ".journal")
	testkit.Equal(t, "the journal is gone", errors.Is(err, fs.ErrNotExist), true)
}

// After a pull that was killed while it replaced a path, a push comes before the next pull: the path was not deleted.
func TestPushAfterAKilledPullKeepsItsJournal(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	first := a.Push(store).Version
	b.Pull(store, treetest.Apart)
	a.Remove("f")
	a.Write("f/below", "2")
	second := a.Push(store).Version
	b.Remove("f") // as between the two steps of replacing it
	journal, err := json.Marshal(map[string]any{"version": second, "from": first, "swapped": [][]byte{[]byte("f")}})
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(b.Dir+treetest.ApartSuffix+"/"+state.ReservedName+".journal", journal, 0o600))
	b.Write("g", "3")
	b.Push(store, treetest.Apart)
	b.Pull(store, treetest.Apart)
	b.Want("f/below", "2")
	b.Want("g", "3")
}

// Giving the state file to another user, as a worker does, changes its ctime and not what it says.
func TestIndexHoldsWhenTheStateFileIsGivenAway(t *testing.T) {
	w, store := treetest.New(t), &storetest.Memory{}
	w.Write("f", "1")
	w.Push(store, treetest.Apart)
	testkit.Must(t, os.Chmod(w.Path(state.ReservedName), 0o600)) // a new ctime
	testkit.Must(t, os.Chmod(w.Path(state.ReservedName), 0o644))
	r := w.Push(store, treetest.Apart)
	testkit.Equal(t, "changed", r.Changed, false)
}

// Hardening 1: a journal of nothing but empty strings took 25 times its size.
func TestForgedJournalIsRefused(t *testing.T) {
	w, store := treetest.New(t), &storetest.Memory{}
	w.Write("f", "1")
	w.Push(store)
	testkit.Must(t, os.WriteFile(w.Path(state.ReservedName+".journal"), []byte(`[""`+strings.Repeat(`,""`, 1<<20)+`]`), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := w.Syncer(store).Push(t.Context())
	runtime.ReadMemStats(&after)
	testkit.WantCode(t, err, schemas.CodeInternal)
	testkit.Contains(t, "error", err.Error(), "journal")
	if took := after.TotalAlloc - before.TotalAlloc; took > 20<<20 {
		t.Errorf("the push took %d bytes of memory, want at most 20 MiB", took)
	}
}

// A folder for its own files that others can write to is refused.
func TestOwnDirIsCheckedForItsOwner(t *testing.T) {
	w, store := treetest.New(t), &storetest.Memory{}
	own := w.Dir + treetest.ApartSuffix
	testkit.Must(t, os.Mkdir(own, 0o700))
	testkit.Must(t, os.Chmod(own, 0o777))
	_, err := w.Syncer(store, treetest.Apart).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodePermissionDenied)
	testkit.Must(t, os.Remove(own))
	testkit.Must(t, os.Symlink(t.TempDir(), own))
	_, err = w.Syncer(store, treetest.Apart).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodePermissionDenied)
}
