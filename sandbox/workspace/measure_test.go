package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/internal/testkit"
)

func TestMeasure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, outside, "x", 20)
	deep := filepath.Join(dir, strings.Repeat("d/", 100))
	testkit.Must(t, os.MkdirAll(deep, 0o700))
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	testkit.Must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(deep, "f"), []byte("12345"), 0o600))
	testkit.Must(t, os.Link(filepath.Join(deep, "f"), filepath.Join(dir, "g")))
	got, err := Measure(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "size of the largest file", got.Largest, int64(5))
	testkit.Equal(t, "files", got.Files, int64(104))
	if got.Bytes < 10 || got.Bytes > 110*4096 {
		t.Errorf("%d bytes, want what 104 small entries take", got.Bytes)
	}
	missing, err := Measure(filepath.Join(dir, "missing"))
	testkit.Must(t, err)
	testkit.Equal(t, "usage of what is missing", missing, Usage{})
}

// deepen makes a chain of folders, and returns the last one. It needs no path, which may have 4 KiB only.
func deepen(tb testing.TB, dir string, levels int) *os.Root {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	for range levels {
		testkit.Must(tb, err)
		testkit.Must(tb, root.Mkdir("d", 0o700))
		var sub *os.Root
		sub, err = root.OpenRoot("d")
		testkit.Must(tb, root.Close())
		root = sub
	}
	testkit.Must(tb, err)
	tb.Cleanup(func() { _ = root.Close() })
	return root
}

// Folders count at any depth, with what is beside and below them.
func TestMeasureDeepFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "w")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { testkit.Must(t, removal.Path(dir)) })
	var want int64
	for _, levels := range []int{maxOpen - 1, maxOpen, maxOpen + 1, 600} {
		for _, top := range []string{"a", "b"} {
			top = filepath.Join(dir, fmt.Sprint(top, levels))
			testkit.Must(t, os.Mkdir(top, 0o700))
			last := deepen(t, top, levels)
			for _, name := range []string{"x", "y", "z"} {
				testkit.Must(t, last.MkdirAll(name+"/1/2", 0o700))
				testkit.Must(t, last.WriteFile(name+"/1/2/f", []byte("12345"), 0o600))
				testkit.Must(t, last.WriteFile(name+"/g", []byte("12345"), 0o600))
			}
			want += 1 + int64(levels) + 3*5
		}
	}
	u, err := Measure(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "files", u.Files, want)
	testkit.Equal(t, "size of the largest file", u.Largest, int64(5))
}

// What is too deep for the memory of a walk is reported, and all the rest counts.
func TestWalkBoundsItsMemory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "w")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { testkit.Must(t, removal.Path(dir)) })
	deepen(t, dir, maxOpen+100)
	fill(t, dir, "f", 10)
	count := 0
	w := walker{visit: func(*entry) error { count++; return nil }, names: make([]byte, smallBuffer), held: maxHeld - 50*(levelBytes+nameBytes+1)}
	held := w.held
	fd, err := unix.Open(dir, openFolder, 0)
	testkit.Must(t, err)
	testkit.Must(t, w.folder(fd, maxOpen))
	if !errors.Is(w.missed, errDeep) {
		t.Errorf("left out: %v, want that folders are nested too deep", w.missed)
	}
	if count < 10+maxOpen+40 || count > 10+maxOpen+60 {
		t.Errorf("%d entries, want all but the deepest 50", count)
	}
	testkit.Equal(t, "bytes held at the end", w.held, held)
	testkit.Equal(t, "path at the end", len(w.path), 0)
}

// Deep folders that are moved while they are walked lead nowhere else.
func TestWalkOfMovedFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "w")
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "in"), 0o700))
	t.Cleanup(func() { testkit.Must(t, removal.Path(dir)) })
	last := deepen(t, filepath.Join(dir, "in"), maxOpen+10)
	testkit.Must(t, last.MkdirAll("x/y/z", 0o700))
	testkit.Must(t, last.WriteFile("x/y/z/moves", nil, 0o600))
	outside, err := os.Open(t.TempDir())
	testkit.Must(t, err)
	defer outside.Close()
	x, err := last.Open("x")
	testkit.Must(t, err)
	defer x.Close()
	missed, err := walk(dir, func(e *entry) error {
		if e.name == "moves" {
			return unix.Renameat(int(x.Fd()), "y", int(outside.Fd()), "y")
		}
		return nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "left out because folders moved", errors.Is(missed, errMoved), true)
}

// A symbolic link gets the new owner; its target does not.
func TestChownFollowsNoLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners: run this test as root")
	}
	const uid, gid = 12345, 12346
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	testkit.Must(t, os.WriteFile(outside, nil, 0o600))
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	testkit.Must(t, Chown(dir, uid, gid))
	testkit.Must(t, Chown(dir, uid, gid)) // again, with nothing to change
	for path, want := range map[string]bool{dir: true, filepath.Join(dir, "link"): true, filepath.Join(dir, "a/b"): true, outside: false} {
		info, err := os.Lstat(path)
		testkit.Must(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || (st.Uid == uid && st.Gid == gid) != want {
			t.Errorf("%s: stat %+v, want owner %d:%d: %v", path, info.Sys(), uid, gid, want)
		}
	}
}

// BenchmarkMeasure measures 1,000 files in one folder. The end of every process pays this cost.
func BenchmarkMeasure(b *testing.B) { benchmarkMeasure(b, 1000) }

func BenchmarkMeasureEmpty(b *testing.B) { benchmarkMeasure(b, 0) }

// BenchmarkMeasureFolders measures 1,000 folders with a file each.
func BenchmarkMeasureFolders(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		sub := filepath.Join(dir, fmt.Sprint(i%10), fmt.Sprint(i))
		testkit.Must(b, os.MkdirAll(sub, 0o700))
		fill(b, sub, "f", 1)
	}
	for b.Loop() {
		if _, err := Measure(dir); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkMeasure(b *testing.B, files int) {
	dir := b.TempDir()
	fill(b, dir, "f", files)
	for b.Loop() {
		if _, err := Measure(dir); err != nil {
			b.Fatal(err)
		}
	}
}
