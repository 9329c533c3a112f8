package syncer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// killedIn runs an operation in its own process, which kills itself in a phase: see [childProgram].
func killedIn(t *testing.T, o treetest.Option, op, root, store, phase string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], childProgram, op, root, store, string(layoutOf(o)), phase)
	cmd.Stderr = os.Stderr
	testkit.Equal(t, "killed", fmt.Sprint(cmd.Run()), "signal: killed")
}

// fillRandom writes a large file of some chunks, and small ones of about a pack.
func fillRandom(w *treetest.Tree) (size int64) {
	random := rand.NewChaCha8([32]byte{9})
	write := func(name string, n int) {
		data := make([]byte, n)
		_, _ = random.Read(data) // never fails
		w.Write(name, string(data))
		size += int64(n)
	}
	write("large", 45<<20)
	for i := range 200 {
		write(fmt.Sprintf("d%d/f%d", i%7, i), 50_000)
	}
	return size
}

// TestKilledPushGoesOn kills a push when it has stored a part or all of the content, and changes a file: the next push sends the rest.
// Sync 9.
func TestKilledPushGoesOn(t *testing.T) {
	for phase, most := range map[string]int64{"upload:40000000": 30 << 20, "commit": 1 << 20} {
		t.Run(phase, func(t *testing.T) {
			treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
				a, b, dir := treetest.New(t), treetest.New(t), t.TempDir()
				fillRandom(a)
				killedIn(t, o, "push", a.Dir, dir, phase)
				a.Write("d0/f0", "changed")
				s := openDir(t, dir)
				defer closeDir(t, s)
				r := a.Push(s, o)
				if r.BytesSent > most {
					t.Errorf("the next push sent %d bytes, want at most %d", r.BytesSent, most)
				}
				testkit.Equal(t, "notes", r.Notes, []string(nil))
				b.Pull(s)
				treetest.Same(t, a, b)
				a.WantNoLeftovers()
				if layoutOf(o) == state.Plain {
					testkit.Equal(t, "differences", treetest.PlainDifferences(t, s, a), "")
				}
			})
		})
	}
}

// TestCopyOfKilledPushStartsOver copies a folder of which a push was killed: the copy relies on nothing that the other may remove.
// Sync 9.
func TestCopyOfKilledPushStartsOver(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, copied, b, dir := treetest.New(t), treetest.New(t), treetest.New(t), t.TempDir()
		size := fillRandom(a)
		killedIn(t, o, "push", a.Dir, dir, "commit")
		copied.Must(os.CopyFS(copied.Path("root"), os.DirFS(a.Dir)))
		copied.Dir = copied.Path("root")
		s := openDir(t, dir)
		defer closeDir(t, s)
		if r := copied.Push(s, o); r.BytesSent < size/2 {
			t.Errorf("the push of a copy sent %d bytes of %d", r.BytesSent, size)
		}
		b.Pull(s)
		treetest.Same(t, a, b)
	})
}

// TestKilledPullGoesOn kills a pull when it has fetched a part of the content, and damages a part of that: the next pull verifies what is
// there, and fetches the rest. Sync 9.
func TestKilledPullGoesOn(t *testing.T) {
	for damage, most := range map[string]int64{"no": 40 << 20, "start": 62 << 20} {
		t.Run(damage, func(t *testing.T) {
			treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
				a, b, dir := treetest.New(t), treetest.New(t), t.TempDir()
				size := fillRandom(a)
				s := openDir(t, dir)
				defer closeDir(t, s)
				a.Push(s, o)
				killedIn(t, o, "pull", b.Dir, dir, "download:30000000")
				if damage == "start" {
					damageStage(b)
				}
				r := b.Pull(s)
				if r.BytesRead > most || damage == "no" && r.BytesRead > size-20<<20 {
					t.Errorf("the next pull fetched %d bytes of %d, want at most %d", r.BytesRead, size, most)
				}
				treetest.Same(t, a, b)
				b.WantNoLeftovers()
			})
		})
	}
}

// damageStage changes the first byte of each file that a killed pull has left.
func damageStage(b *treetest.Tree) {
	b.T.Helper()
	count := 0
	b.Must(filepath.WalkDir(b.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !strings.Contains(path, ".sandbox-state.tmp-") {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		var first [1]byte
		if n, _ := f.ReadAt(first[:], 0); n > 0 { // else it is empty
			count++
			_, err = f.WriteAt([]byte{first[0] + 1}, 0)
		}
		return errors.Join(err, f.Close())
	}))
	if count == 0 {
		b.T.Error("the killed pull has left no files")
	}
}
