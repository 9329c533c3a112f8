package syncer_test

import (
	"bytes"
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
)

// layouts runs a test for both layouts.
func layouts(t *testing.T, test func(t *testing.T, o option)) {
	for _, l := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(l), func(t *testing.T) { test(t, layout(l)) })
	}
}

// difficult writes what sync tools are known to lose.
func difficult(w *tree) {
	w.write("run.sh", "#!/bin/sh\n")
	w.chmod("run.sh", 0o755)
	w.write("secret", "s")
	w.chmod("secret", 0o600)
	w.write("readonly", "r")
	w.chmod("readonly", 0o444)
	w.write("zero", "")
	w.write("ünï çødé/ñ", "u")
	w.write("new\nline", "n")
	w.write("back\\slash", "b")
	w.write("bad\xff\xfeutf8", "raw")
	w.write(" lead and trail ", "s")
	w.write("%41+&?#", "p")
	w.write("dir/a", "1")
	w.write("dir-b", "2")
	w.write("dir.c", "3")
	w.mkdir("empty/inner")
	w.chmod("empty", 0o700)
	w.link("run.sh", "link")
	w.link("nowhere/at/all", "dangling")
	w.link("../run.sh", "dir/up")
	w.link(".", "dir/self")
	w.write("big", strings.Repeat("0123456789abcdef", 1<<16)) // as large as a small file can be
	w.write("huge", strings.Repeat("chunks!!", 9<<17)+"tail") // more than a chunk
	f, err := os.Create(w.path("sparse"))
	w.must(err)
	_, err = f.WriteAt([]byte("end"), 20<<20)
	w.must(err)
	w.must(f.Close())
	past := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	w.must(os.Chtimes(w.path("secret"), past, past))
}

func TestPushThenPullCarriesEverything(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		difficult(a)
		r := a.push(store, o)
		testkit.Equal(t, "skipped", r.Skipped, []syncer.Skipped(nil))
		testkit.Equal(t, "changed", r.Changed, true)
		b.pull(store)
		sameTrees(t, a, b)
		testkit.Equal(t, "tree with times", list(t, b.dir, true), list(t, a.dir, true))
		var st syscall.Stat_t
		b.must(syscall.Stat(b.path("sparse"), &st))
		if st.Blocks*512 > 1<<20 {
			t.Errorf("the sparse file takes %d KiB, want at most 1024", st.Blocks/2)
		}
		for _, w := range []*tree{a, b} {
			wantUnchanged(t, "second push", w.push(store))
			wantUnchanged(t, "second pull", w.pull(store))
		}
		b.remove("dir")
		b.write("dir", "a file now")
		b.remove("run.sh")
		b.write("run.sh/is/a/folder/now", "x")
		b.write("secret", "other")
		b.remove("empty")
		b.remove("link")
		b.link("zero", "link")
		b.chmod("zero", 0o755)
		b.push(store)
		a.pull(store)
		sameTrees(t, a, b)
	})
}

// TestHugeFileRoundTrips reads five gigabytes twice, in the long form only.
func TestHugeFileRoundTrips(t *testing.T) {
	if os.Getenv(envChaos) == "" {
		t.Skip("set " + envChaos + " to run it")
	}
	a, b, store := newTree(t), newTree(t), newStore()
	f, err := os.Create(a.path("huge"))
	a.must(err)
	_, err = f.WriteAt([]byte("end"), 5<<30)
	a.must(err)
	_, err = f.WriteAt([]byte("middle"), 2<<30+5)
	a.must(err)
	a.must(f.Close())
	a.push(store)
	b.pull(store)
	info, err := os.Stat(b.path("huge"))
	b.must(err)
	testkit.Equal(t, "size", info.Size(), int64(5<<30+3))
	if out, err := exec.Command("cmp", a.path("huge"), b.path("huge")).CombinedOutput(); err != nil {
		t.Errorf("the files differ: %v: %s", err, out)
	}
}

func TestChangesOfBothSidesMerge(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		a.write("both", "0")
		a.write("gone-a", "x")
		a.write("gone-b", "x")
		a.write("d/x", "x")
		a.push(store, o)
		b.pull(store)
		a.write("new-a", "a")
		a.remove("gone-a")
		a.write("d/a", "a")
		b.write("new-b", "b")
		b.remove("gone-b")
		b.chmod("both", 0o755)
		a.push(store)
		r := b.push(store)
		testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict(nil))
		b.wantExists("gone-a", true) // a push does not change the folder
		b.wantExists("new-a", false)
		b.pull(store)
		a.pull(store)
		sameTrees(t, a, b)
		a.wantExists("gone-a", false)
		a.wantExists("gone-b", false)
		a.want("new-b", "b")
		b.want("d/a", "a")
	})
}

func TestFirstSyncDeletesNothing(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("a", "a")
	a.push(store)
	b.write("mine", "precious")
	b.pull(store)
	b.push(store)
	b.want("mine", "precious")
	b.want("a", "a")
	// Neither does a sync with a store that has lost everything.
	fresh := newStore()
	b.pull(fresh)
	b.push(fresh)
	c := newTree(t)
	c.pull(fresh)
	sameTrees(t, b, c)
}

func TestIgnoredPathsStayOnBothSides(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("keep", "1")
	a.write("build/out", "1")
	a.write("build/keep/this", "1")
	a.push(store)
	b.pull(store)
	b.write(".sandboxignore", "build\n!build/keep\n*.tmp\n")
	b.write("x.tmp", "t")
	b.remove("build/out")
	b.write("build/keep/this", "2")
	b.push(store)
	a.pull(store)
	a.want("build/out", "1")
	a.want("build/keep/this", "2")
	a.wantExists("x.tmp", false)
	a.wantExists(".sandboxignore", true)
}

func TestPushReportsSkippedPaths(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("f", "x")
	a.must(syscall.Mkfifo(a.path("pipe"), 0o600))
	a.link("/etc/passwd", "abs")
	a.link("../../outside", "up")
	testkit.Equal(t, "skipped", a.push(store).Skipped, []syncer.Skipped{{Path: "abs", Reason: "a symlink out of the folder: /etc/passwd"},
		{Path: "pipe", Reason: "a fifo"}, {Path: "up", Reason: "a symlink out of the folder: ../../outside"}})
	b.pull(store)
	testkit.Equal(t, "number of pulled paths", len(b.listing()), 1)
	a.push(store, func(c *syncer.Config) { c.OutsideLinks = true })
	b.pull(store)
	b.wantExists("abs", false)
	b.push(store)
	b.wantExists("abs", false)
	c := newTree(t) // which finds that b's push has not removed the symlink
	c.pull(store, func(c *syncer.Config) { c.OutsideLinks = true })
	target, err := os.Readlink(c.path("abs"))
	c.must(err)
	testkit.Equal(t, "target", target, "/etc/passwd")
}

func TestPushNotesCaseCollisions(t *testing.T) {
	a, store := newTree(t), newStore()
	for _, name := range []string{"readme", "README", "caf\u00e9", "cafe\u0301", "Other"} {
		a.write(name, name)
	}
	r := a.push(store)
	testkit.Equal(t, "uploaded", r.Uploaded, 5)
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[0]+r.Notes[1], "Unicode") {
		t.Errorf("notes = %q, want one for the case and one for the Unicode form", r.Notes)
	}
}

func TestStateFileIsPortable(t *testing.T) {
	a, store := newTree(t), newStore()
	difficult(a)
	a.push(store)
	local := a.read(state.ReservedName)
	remote, _, err := store.Get(t.Context(), state.ReservedName, objectstore.Range{}, nil)
	a.must(err)
	for _, data := range [][]byte{[]byte(local), remote} {
		checkPortable(t, data)
	}
	// A tool that knows only the documented fields rewrites the file, which is the base from then on.
	a.write(state.ReservedName, `{"version":"1.0","last_synced_at":1767323045,"files":[
		{"path":"zero","checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":1767323045}]}`)
	r := a.push(store)
	wantUnchanged(t, "push after the rewrite", r)
	testkit.Equal(t, "conflicts", r.Conflicts, []syncer.Conflict(nil))
}

func TestPushRebuildsCorruptLocalState(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "x")
	a.push(store)
	a.write(state.ReservedName, "{ torn")
	r := a.push(store)
	wantUnchanged(t, "push with a torn state", r)
	testkit.Equal(t, "number of notes", len(r.Notes), 1)
	if got := a.read(state.ReservedName); !strings.Contains(got, `"version":"1.0"`) {
		t.Errorf("state file = %s, want a new one", got)
	}
	a.write(state.ReservedName, `{"version":"7.0","files":[]}`)
	_, err := a.syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	if !strings.Contains(err.Error(), "7.0") {
		t.Errorf("error = %v, want the version 7.0 in it", err)
	}
	a.remove(state.ReservedName)
	a.write(state.ReservedName+".index", "garbage")
	wantUnchanged(t, "push with a broken index", a.push(store))
}

func TestPushReplacesCorruptRemoteState(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, store := newTree(t), newStore()
		a.write("f", "1")
		a.push(store, o)
		a.write("f", "22")
		a.write("g", "x")
		a.push(store)
		torn := []byte("{ torn")
		_, err := store.Put(t.Context(), state.ReservedName, objectstore.Content{Reader: bytes.NewReader(torn), Size: 6}, objectstore.Condition{})
		a.must(err)
		r := a.push(store, o)
		testkit.Equal(t, "changed", r.Changed, true)
		if len(r.Notes) == 0 {
			t.Error("notes are empty, want one for the corrupt state")
		}
		b := newTree(t)
		b.pull(store)
		sameTrees(t, a, b)
	})
}

func TestPushReadsRacilyCleanFilesAgain(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	// In quick succession: the same size, and most often the same time stamp.
	for i := range 50 {
		a.write("f", string(rune('A'+i%26)))
		a.push(store)
	}
	a.write("f", "?")
	a.push(store)
	b.pull(store)
	b.want("f", "?")
}

func TestVerifyReadsUnchangedFiles(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "one")
	old := time.Now().Add(-time.Hour)
	a.must(os.Chtimes(a.path("f"), old, old))
	a.push(store)
	wantUnchanged(t, "push with verify", a.push(store, func(c *syncer.Config) { c.Verify = true }))
}

func TestPushRefusesStoreWithoutConditions(t *testing.T) {
	a, store := newTree(t), newStore()
	store.IgnoreConditions = true
	a.write("f", "x")
	_, err := a.syncer(store).Push(t.Context())
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	a.push(store, func(c *syncer.Config) { c.SingleWriter = true })
}

func TestSecondSyncOfFolderConflicts(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "x")
	var inner error
	s := a.syncer(store, func(c *syncer.Config) {
		c.Progress = func(syncer.Progress) {
			if inner == nil {
				_, inner = a.syncer(store).Push(t.Context())
			}
		}
	})
	_, err := s.Push(t.Context())
	a.must(err)
	testkit.WantCode(t, inner, schemas.CodeConflict)
}

func TestReadOnlyFoldersRoundTrip(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("closed/inner/f", "1")
	a.write("closed/g", "1")
	a.chmod("closed/inner", 0o555)
	a.chmod("closed", 0o555)
	defer func() {
		for _, w := range []*tree{a, b} { // so that the folder can be removed
			w.chmod("closed", 0o755)
			w.chmod("closed/inner", 0o755)
		}
	}()
	a.push(store)
	b.pull(store)
	sameTrees(t, a, b)
	a.chmod("closed", 0o755)
	a.write("closed/g", "22")
	a.write("closed/new", "n")
	a.chmod("closed", 0o555)
	a.push(store)
	b.pull(store)
	sameTrees(t, a, b)
	a.chmod("closed", 0o755)
	a.remove("closed/new")
	a.chmod("closed", 0o555)
	a.push(store)
	b.pull(store)
	sameTrees(t, a, b)
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
	b, store := newTree(t), newStore()
	put := func(key, data string) {
		_, err := store.Put(t.Context(), key,
			objectstore.Content{Reader: strings.NewReader(data), Size: int64(len(data))}, objectstore.Condition{})
		b.must(err)
	}
	put("src/main.py", "print()")
	put(state.ReservedName, `{"version":"1.0","last_synced_at":1704067200,"files":[{"path":"src/main.py",`+
		`"checksum":"`+fmt.Sprintf("%x", md5.Sum([]byte("print()")))+`","size":7,"modified_at":1704067100}]}`)
	b.pull(store)
	b.want("src/main.py", "print()")
	info, err := os.Stat(b.path("src/main.py"))
	b.must(err)
	testkit.Equal(t, "time", info.ModTime().Unix(), int64(1704067100))
	b.write("src/new", "1")
	b.push(store)
	a := newTree(t)
	a.pull(store)
	sameTrees(t, b, a)
}
