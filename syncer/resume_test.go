package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
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
				testkit.Equal(t, "differences", plainDifferences(t, o, s, a), "")
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
