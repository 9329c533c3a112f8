package syncer_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// layouts runs a test for both of them.
func layouts(t *testing.T, test func(t *testing.T, o option)) {
	for _, l := range []syncer.Layout{syncer.Packed, syncer.Plain} {
		t.Run(string(l), func(t *testing.T) { test(t, layout(l)) })
	}
}

// difficult has what sync tools are known to lose.
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
	w.write("big", strings.Repeat("0123456789abcdef", 1<<16)) // over a pack's limit
	w.write("huge", strings.Repeat("chunks!!", 9<<17)+"tail") // over a chunk
	f, err := os.Create(w.path("sparse"))
	w.must(err)
	_, err = f.WriteAt([]byte("end"), 20<<20)
	w.must(err)
	w.must(f.Close())
	past := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	w.must(os.Chtimes(w.path("secret"), past, past))
}

func TestEverythingGoesThereAndBack(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		difficult(a)
		if r := a.push(store, o); len(r.Skipped) > 0 || !r.Changed {
			t.Fatalf("%+v", r)
		}
		b.pull(store)
		sameTrees(t, a, b)
		if !slices.Equal(list(t, a.dir, true), list(t, b.dir, true)) {
			t.Error("the times differ")
		}
		var st syscall.Stat_t
		if err := syscall.Stat(b.path("sparse"), &st); err != nil || st.Blocks*512 > 1<<20 {
			t.Errorf("the sparse file takes %d KiB, %v", st.Blocks/2, err)
		}
		for _, w := range []*tree{a, b} {
			if r := w.push(store); r.Changed {
				t.Errorf("a second push changed something: %+v", r)
			}
			if r := w.pull(store); r.Changed {
				t.Errorf("a second pull changed something: %+v", r)
			}
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

// TestAHugeFile is for the long form alone: five gigabytes are read twice.
func TestAHugeFile(t *testing.T) {
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
	if err != nil || info.Size() != 5<<30+3 {
		t.Fatal(info, err)
	}
	if err := exec.Command("cmp", a.path("huge"), b.path("huge")).Run(); err != nil {
		t.Error(err)
	}
}

func TestBothSidesMerge(t *testing.T) {
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
		if len(r.Conflicts) > 0 || !b.exists("gone-a") || b.exists("new-a") {
			t.Fatalf("a push has changed the folder: %+v", r)
		}
		b.pull(store)
		a.pull(store)
		sameTrees(t, a, b)
		if a.exists("gone-a") || a.exists("gone-b") || a.read("new-b") != "b" || b.read("d/a") != "a" {
			t.Error(strings.Join(a.listing(), "\n"))
		}
	})
}

func TestAStrangeFolderIsNotEmptied(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("a", "a")
	a.push(store)
	b.write("mine", "precious")
	b.pull(store)
	b.push(store)
	if b.read("mine") != "precious" || b.read("a") != "a" {
		t.Error(b.listing())
	}
	// A store that has lost everything does not empty the folder either.
	fresh := newStore()
	b.pull(fresh)
	b.push(fresh)
	c := newTree(t)
	c.pull(fresh)
	sameTrees(t, b, c)
}

func TestIgnoredIsLeftAlone(t *testing.T) {
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
	if a.read("build/out") != "1" || a.read("build/keep/this") != "2" || a.exists("x.tmp") || !a.exists(".sandboxignore") {
		t.Error(strings.Join(a.listing(), "\n"))
	}
}

func TestWhatCannotBeCarriedIsSaid(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	a.write("f", "x")
	a.must(syscall.Mkfifo(a.path("pipe"), 0o600))
	a.link("/etc/passwd", "abs")
	a.link("../../outside", "up")
	r := a.push(store)
	if len(r.Skipped) != 3 {
		t.Errorf("%+v", r.Skipped)
	}
	b.pull(store)
	if len(b.listing()) != 1 {
		t.Error(b.listing())
	}
	a.push(store, func(c *syncer.Config) { c.OutsideLinks = true })
	b.pull(store)
	if b.exists("abs") {
		t.Error("a symlink that leads out was made unasked")
	}
	if b.push(store); b.exists("abs") {
		t.Error()
	}
	c := newTree(t)
	c.pull(store, func(c *syncer.Config) { c.OutsideLinks = true })
	if target, err := os.Readlink(c.path("abs")); err != nil || target != "/etc/passwd" {
		t.Errorf("%q, %v: another folder's push has removed it", target, err)
	}
}

func TestNamesThatAreOneElsewhereAreSaid(t *testing.T) {
	a, store := newTree(t), newStore()
	for _, name := range []string{"readme", "README", "caf\u00e9", "cafe\u0301", "Other"} {
		a.write(name, name)
	}
	r := a.push(store)
	if len(r.Notes) != 2 || r.Uploaded != 5 || !strings.Contains(r.Notes[0]+r.Notes[1], "Unicode") {
		t.Errorf("%+v", r)
	}
}

func TestStateFileIsPortable(t *testing.T) {
	a, store := newTree(t), newStore()
	difficult(a)
	a.push(store)
	local := a.read(syncer.ReservedName)
	remote, _, err := store.Get(t.Context(), syncer.ReservedName, syncer.Range{}, nil)
	a.must(err)
	for _, data := range [][]byte{[]byte(local), remote} {
		checkPortable(t, data)
	}
	// A tool that knows the documented fields alone rewrites the file: that is the base from then on.
	a.write(syncer.ReservedName, `{"version":"1.0","last_synced_at":"2026-01-02T03:04:05Z","files":[
		{"path":"zero","checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":"2026-01-02T03:04:05Z"}]}`)
	if r := a.push(store); r.Changed || len(r.Conflicts) > 0 {
		t.Errorf("%+v", r)
	}
}

func TestBrokenLocalStates(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "x")
	a.push(store)
	a.write(syncer.ReservedName, "{ torn")
	if r := a.push(store); len(r.Notes) != 1 || r.Changed {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(a.read(syncer.ReservedName), `"version":"1.0"`) {
		t.Error("not made anew")
	}
	a.write(syncer.ReservedName, `{"version":"7.0","files":[]}`)
	if _, err := a.syncer(store).Push(t.Context()); !errors.Is(err, schemas.ErrInvalidArgument) || !strings.Contains(err.Error(), "7.0") {
		t.Error(err)
	}
	a.remove(syncer.ReservedName)
	a.write(syncer.ReservedName+".index", "garbage")
	if r := a.push(store); r.Changed {
		t.Errorf("%+v", r)
	}
}

func TestCorruptRemoteStateIsMadeAnew(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, store := newTree(t), newStore()
		a.write("f", "1")
		a.push(store, o)
		a.write("f", "22")
		a.write("g", "x")
		a.push(store)
		torn := []byte("{ torn")
		_, err := store.Put(t.Context(), syncer.ReservedName, syncer.Content{Reader: bytes.NewReader(torn), Size: 6}, syncer.Condition{})
		a.must(err)
		r := a.push(store, o)
		if !r.Changed || len(r.Notes) == 0 {
			t.Errorf("%+v", r)
		}
		b := newTree(t)
		b.pull(store)
		sameTrees(t, a, b)
	})
}

func TestRacilyCleanFilesAreReadAgain(t *testing.T) {
	a, b, store := newTree(t), newTree(t), newStore()
	// As fast as it goes: the same size, and as a rule the same time stamp.
	for i := range 50 {
		a.write("f", string(rune('A'+i%26)))
		a.push(store)
	}
	a.write("f", "?")
	a.push(store)
	b.pull(store)
	if b.read("f") != "?" {
		t.Errorf("%q: a change was missed", b.read("f"))
	}
}

func TestVerifyFindsWhatTheStatHides(t *testing.T) {
	a, store := newTree(t), newStore()
	a.write("f", "one")
	old := time.Now().Add(-time.Hour)
	a.must(os.Chtimes(a.path("f"), old, old))
	a.push(store)
	if r := a.push(store, func(c *syncer.Config) { c.Verify = true }); r.Changed {
		t.Errorf("%+v", r)
	}
}

func TestDeafStoreIsRefused(t *testing.T) {
	a, store := newTree(t), newStore()
	store.Deaf = true
	a.write("f", "x")
	if _, err := a.syncer(store).Push(t.Context()); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatal(err)
	}
	a.push(store, func(c *syncer.Config) { c.SingleWriter = true })
}

func TestOneSyncOfAFolderAtATime(t *testing.T) {
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
	if _, err := s.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(inner, schemas.ErrConflict) {
		t.Error(inner)
	}
}

func TestFoldersClosedToTheirOwner(t *testing.T) {
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
