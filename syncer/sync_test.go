package syncer_test

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

func TestMain(m *testing.M) {
	testkit.Main(m, testkit.Programs{childProgram: child, ordinaryProgram: ordinaryChild, lossProgram: disturbedChild})
}

// difficult writes what sync tools are known to lose.
func difficult(w *treetest.Tree) {
	w.Write("run.sh", "#!/bin/sh\n")
	w.Chmod("run.sh", 0o755)
	w.Write("secret", "s")
	w.Chmod("secret", 0o600)
	w.Write("readonly", "r")
	w.Chmod("readonly", 0o444)
	w.Write("zero", "")
	w.Write("ünï çødé/ñ", "u")
	w.Write("new\nline", "n")
	w.Write("back\\slash", "b")
	w.Write("bad\xff\xfeutf8", "raw")
	w.Write(" lead and trail ", "s")
	w.Write("%41+&?#", "p")
	w.Write("dir/a", "1")
	w.Write("dir-b", "2")
	w.Write("dir.c", "3")
	w.Mkdir("empty/inner")
	w.Chmod("empty", 0o700)
	w.Symlink("run.sh", "link")
	w.Symlink("nowhere/at/all", "dangling")
	w.Symlink("../run.sh", "dir/up")
	w.Symlink(".", "dir/self")
	w.Write("big", strings.Repeat("0123456789abcdef", 1<<16)) // as large as a small file can be
	w.Write("huge", strings.Repeat("chunks!!", 9<<17)+"tail") // more than a chunk
	f, err := os.Create(w.Path("sparse"))
	w.Must(err)
	_, err = f.WriteAt([]byte("end"), 20<<20)
	w.Must(err)
	w.Must(f.Close())
	past := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	w.Must(os.Chtimes(w.Path("secret"), past, past))
}

func TestPushThenPullCarriesEverything(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		difficult(a)
		r := a.Push(store, o)
		testkit.Equal(t, "skipped", r.Skipped, []worktree.Skipped(nil))
		testkit.Equal(t, "changed", r.Changed, true)
		b.Pull(store)
		treetest.Same(t, a, b)
		testkit.Equal(t, "tree with times", b.ListWithTimes(), a.ListWithTimes())
		var st syscall.Stat_t
		b.Must(syscall.Stat(b.Path("sparse"), &st))
		if st.Blocks*512 > 1<<20 {
			t.Errorf("the sparse file takes %d KiB, want at most 1024", st.Blocks/2)
		}
		for _, w := range []*treetest.Tree{a, b} {
			wantUnchanged(t, "second push", w.Push(store))
			wantUnchanged(t, "second pull", w.Pull(store))
		}
		b.Remove("dir")
		b.Write("dir", "a file now")
		b.Remove("run.sh")
		b.Write("run.sh/is/a/folder/now", "x")
		b.Write("secret", "other")
		b.Remove("empty")
		b.Remove("link")
		b.Symlink("zero", "link")
		b.Chmod("zero", 0o755)
		b.Carry(store, a)
	})
}

// TestHugeFileRoundTrips reads five gigabytes twice, in the long form only.
func TestHugeFileRoundTrips(t *testing.T) {
	if os.Getenv(treetest.Chaos) == "" {
		t.Skip("set " + treetest.Chaos + " to run it")
	}
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	f, err := os.Create(a.Path("huge"))
	a.Must(err)
	_, err = f.WriteAt([]byte("end"), 5<<30)
	a.Must(err)
	_, err = f.WriteAt([]byte("middle"), 2<<30+5)
	a.Must(err)
	a.Must(f.Close())
	a.Push(store)
	b.Pull(store)
	info, err := os.Stat(b.Path("huge"))
	b.Must(err)
	testkit.Equal(t, "size", info.Size(), int64(5<<30+3))
	if out, err := exec.Command("cmp", a.Path("huge"), b.Path("huge")).CombinedOutput(); err != nil {
		t.Errorf("the files differ: %v: %s", err, out)
	}
}

func TestChangesOfBothSidesMerge(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		a.Write("both", "0")
		a.Write("gone-a", "x")
		a.Write("gone-b", "x")
		a.Write("d/x", "x")
		a.Push(store, o)
		b.Pull(store)
		a.Write("new-a", "a")
		a.Remove("gone-a")
		a.Write("d/a", "a")
		b.Write("new-b", "b")
		b.Remove("gone-b")
		b.Chmod("both", 0o755)
		a.Push(store)
		r := b.Push(store)
		testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict(nil))
		b.WantExists("gone-a", true) // a push does not change the folder
		b.WantExists("new-a", false)
		b.Pull(store)
		a.Pull(store)
		treetest.Same(t, a, b)
		a.WantExists("gone-a", false)
		a.WantExists("gone-b", false)
		a.Want("new-b", "b")
		b.Want("d/a", "a")
	})
}

func TestFirstSyncDeletesNothing(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("a", "a")
	a.Push(store)
	b.Write("mine", "precious")
	b.Pull(store)
	b.Push(store)
	b.Want("mine", "precious")
	b.Want("a", "a")
	// Neither does a sync with a store that has lost everything.
	fresh := &storetest.Memory{}
	b.Pull(fresh)
	b.Carry(fresh, treetest.New(t))
}

func TestIgnoredPathsStayOnBothSides(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("keep", "1")
	a.Write("build/out", "1")
	a.Write("build/keep/this", "1")
	a.Push(store)
	b.Pull(store)
	b.Write(".sandboxignore", "build\n!build/keep\n*.tmp\n")
	b.Write("x.tmp", "t")
	b.Remove("build/out")
	b.Write("build/keep/this", "2")
	b.Push(store)
	a.Pull(store)
	a.Want("build/out", "1")
	a.Want("build/keep/this", "2")
	a.WantExists("x.tmp", false)
	a.WantExists(".sandboxignore", true)
}

func TestPushReportsSkippedPaths(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "x")
	a.Must(syscall.Mkfifo(a.Path("pipe"), 0o600))
	a.Symlink("/etc/passwd", "abs")
	a.Symlink("../../outside", "up")
	testkit.Equal(t, "skipped", a.Push(store).Skipped, []worktree.Skipped{{Path: "abs", Reason: `a symlink out of the folder: "/etc/passwd"`},
		{Path: "pipe", Reason: "a fifo"}, {Path: "up", Reason: `a symlink out of the folder: "../../outside"`}})
	b.Pull(store)
	testkit.Equal(t, "number of pulled paths", len(b.List()), 1)
	a.Push(store, func(c *syncer.Config) { c.OutsideLinks = true })
	b.Pull(store)
	b.WantExists("abs", false)
	b.Push(store)
	b.WantExists("abs", false)
	c := treetest.New(t) // which finds that b's push has not removed the symlink
	c.Pull(store, func(c *syncer.Config) { c.OutsideLinks = true })
	target, err := os.Readlink(c.Path("abs"))
	c.Must(err)
	testkit.Equal(t, "target", target, "/etc/passwd")
}

func TestPushNotesCaseCollisions(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	for _, name := range []string{"readme", "README", "caf\u00e9", "cafe\u0301", "Other"} {
		a.Write(name, name)
	}
	r := a.Push(store)
	testkit.Equal(t, "uploaded", r.Uploaded, 5)
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[0]+r.Notes[1], "Unicode") {
		t.Errorf("notes = %q, want one for the case and one for the Unicode form", r.Notes)
	}
}

func TestStateFileIsPortable(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	difficult(a)
	a.Push(store)
	local := a.Read(state.ReservedName)
	remote, _, err := store.Get(t.Context(), state.ReservedName, objectstore.Range{}, nil)
	a.Must(err)
	for _, data := range [][]byte{[]byte(local), remote} {
		checkPortable(t, data)
	}
	// A tool that knows only the documented fields rewrites the file, which is the base from then on.
	a.Write(state.ReservedName, `{"version":"1.0","last_synced_at":1767323045,"files":[
		{"path":"zero","checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":1767323045}]}`)
	r := a.Push(store)
	wantUnchanged(t, "push after the rewrite", r)
	testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict(nil))
}

func TestPushRebuildsCorruptLocalState(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "x")
	a.Push(store)
	a.Write(state.ReservedName, "{ torn")
	r := a.Push(store)
	wantUnchanged(t, "push with a torn state", r)
	testkit.Equal(t, "number of notes", len(r.Notes), 1)
	if got := a.Read(state.ReservedName); !strings.Contains(got, `"version":"1.0"`) {
		t.Errorf("state file = %s, want a new one", got)
	}
	a.Write(state.ReservedName, `{"version":"7.0","files":[]}`)
	_, err := a.Syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	if !strings.Contains(err.Error(), "7.0") {
		t.Errorf("error = %v, want the version 7.0 in it", err)
	}
	a.Remove(state.ReservedName)
	a.Write(state.ReservedName+".index", "garbage")
	wantUnchanged(t, "push with a broken index", a.Push(store))
}

func TestPushReplacesCorruptRemoteState(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, store := treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Push(store, o)
		a.Write("f", "22")
		a.Write("g", "x")
		a.Push(store)
		treetest.PutState(t, store, []byte("{ torn"))
		r := a.Push(store, o)
		testkit.Equal(t, "changed", r.Changed, true)
		if len(r.Notes) == 0 {
			t.Error("notes are empty, want one for the corrupt state")
		}
		b := treetest.New(t)
		b.Pull(store)
		treetest.Same(t, a, b)
	})
}

func TestPushReadsRacilyCleanFilesAgain(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	// In quick succession: the same size, and most often the same time stamp.
	for i := range 50 {
		a.Write("f", string(rune('A'+i%26)))
		a.Push(store)
	}
	a.Write("f", "?")
	a.Push(store)
	b.Pull(store)
	b.Want("f", "?")
}

func TestVerifyReadsUnchangedFiles(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "one")
	old := time.Now().Add(-time.Hour)
	a.Must(os.Chtimes(a.Path("f"), old, old))
	a.Push(store)
	wantUnchanged(t, "push with verify", a.Push(store, func(c *syncer.Config) { c.Verify = true }))
}

func TestPullSetsTheTimeOfAFileWithANewMode(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "one")
	a.Push(store)
	b.Pull(store)
	old := time.Now().Add(-time.Hour)
	a.Must(os.Chtimes(a.Path("f"), old, old))
	a.Chmod("f", 0o600)
	a.Push(store)
	b.Pull(store)
	testkit.Equal(t, "pulled tree", b.ListWithTimes(), a.ListWithTimes())
	wantUnchanged(t, "second pull", b.Pull(store))
}

func TestPushRefusesStoreWithoutConditions(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	store.IgnoreConditions = true
	a.Write("f", "x")
	_, err := a.Syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	a.Push(store, func(c *syncer.Config) { c.SingleWriter = true })
}

func TestSecondSyncOfFolderConflicts(t *testing.T) {
	a, store := treetest.New(t), &storetest.Memory{}
	a.Write("f", "x")
	var inner error
	a.Push(store, atFirst("scan", func() { _, inner = a.Syncer(store).Push(t.Context()) }))
	testkit.WantCode(t, inner, schemas.CodeConflict)
}

func TestReadOnlyFoldersRoundTrip(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("closed/inner/f", "1")
	a.Write("closed/g", "1")
	a.Chmod("closed/inner", 0o555)
	a.Chmod("closed", 0o555)
	defer func() {
		for _, w := range []*treetest.Tree{a, b} { // so that the folder can be removed
			w.Chmod("closed", 0o755)
			w.Chmod("closed/inner", 0o755)
		}
	}()
	a.Carry(store, b)
	a.Chmod("closed", 0o755)
	a.Write("closed/g", "22")
	a.Write("closed/new", "n")
	a.Chmod("closed", 0o555)
	a.Carry(store, b)
	a.Chmod("closed", 0o755)
	a.Remove("closed/new")
	a.Chmod("closed", 0o555)
	a.Carry(store, b)
}

func wantUnchanged(t *testing.T, what string, r *syncer.Report) {
	t.Helper()
	if r.Changed {
		t.Errorf("%s: report = %+v, want nothing changed", what, r)
	}
}

// checkPortable reads a state as a tool does that knows only the documented format.
func checkPortable(t *testing.T, data []byte) {
	t.Helper()
	var s struct {
		Version      string `json:"version"`
		LastSyncedAt int64  `json:"last_synced_at"`
		Files        []struct {
			Path       string `json:"path"`
			Checksum   string `json:"checksum"`
			Size       int64  `json:"size"`
			ModifiedAt int64  `json:"modified_at"`
		} `json:"files"`
	}
	testkit.Must(t, json.Unmarshal(data, &s))
	testkit.Equal(t, "version", s.Version, "1.0")
	if age := time.Since(time.Unix(s.LastSyncedAt, 0)); age < 0 || age > time.Hour {
		t.Errorf("last_synced_at = %d, want now in Unix seconds", s.LastSyncedAt)
	}
	modified := map[string]int64{}
	for _, f := range s.Files {
		modified[f.Path] = f.ModifiedAt
		if f.Path == "" || len(f.Checksum) != 32 || f.ModifiedAt == 0 {
			t.Errorf("file = %+v, want a path, an MD5 and a time", f)
		}
		if f.Path == "zero" {
			testkit.Equal(t, "checksum of an empty file", f.Checksum, "d41d8cd98f00b204e9800998ecf8427e")
		}
	}
	testkit.Equal(t, "number of files", len(s.Files) >= 10, true)
	testkit.Equal(t, "modified_at of secret", modified["secret"], time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC).Unix())
}

// TestDocumentedStatePulls pulls a workspace that another tool has stored with a state of the documented fields alone.
func TestDocumentedStatePulls(t *testing.T) {
	b, store := treetest.New(t), &storetest.Memory{}
	data := []byte("print()")
	_, err := store.Put(t.Context(), "src/main.py", objectstore.Bytes(data), objectstore.Condition{})
	b.Must(err)
	treetest.PutState(t, store, fmt.Appendf(nil, `{"version":"1.0","last_synced_at":1704067200,"files":[{"path":"src/main.py",`+
		`"checksum":"%x","size":7,"modified_at":1704067100}]}`, md5.Sum(data)))
	b.Pull(store)
	b.Want("src/main.py", "print()")
	info, err := os.Stat(b.Path("src/main.py"))
	b.Must(err)
	testkit.Equal(t, "time", info.ModTime().Unix(), int64(1704067100))
	b.Write("src/new", "1")
	b.Carry(store, treetest.New(t))
}
