package treetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Kills is a test of operations that are killed.
type Kills struct {
	Store   objectstore.Store
	Plain   bool // the layout
	Options []Option
	Rounds  int
	Flat    bool // no path is a file at one time and a folder at another
	// Command returns a process that pushes or pulls a folder.
	Command func(op, root string) *exec.Cmd
	// Killed, when set, is called after each process has ended, and After after each round.
	Killed, After func()
}

// Fill writes files in folders, and a large one.
func Fill(w *Tree) {
	for i := range 60 {
		w.Write(fmt.Sprintf("d%d/f%d", i%4, i/4), strings.Repeat(strconv.Itoa(i), 2000))
	}
	w.Write("large", strings.Repeat("x", 9<<20))
}

// Stir changes a few paths of a tree at random: contents, kinds, folders and names.
func Stir(w *Tree, random *rand.Rand) { stir(w, random, false) }

func stir(w *Tree, random *rand.Rand, flat bool) {
	for range 4 {
		name := fmt.Sprintf("d%d/f%d", random.IntN(4), random.IntN(8))
		kind := random.IntN(7)
		if flat && (kind == 2 || kind == 3) {
			kind = 5
		}
		switch kind {
		case 0:
			w.Remove(name)
		case 1:
			w.Remove(name)
			w.Remove(filepath.Dir(name))
		case 2:
			w.clear(name)
			w.Write(name+"/below", strconv.Itoa(random.Int()))
		case 3:
			w.Remove(filepath.Dir(name))
			w.Write(filepath.Dir(name), strconv.Itoa(random.Int()))
		case 4:
			w.clear(name)
			w.Write(name, strings.Repeat(strconv.Itoa(random.Int()), 100_000))
		default:
			w.clear(name)
			w.Write(name, strconv.Itoa(random.Int()))
		}
	}
	w.clear("always")
	w.Write("always", strconv.Itoa(random.Int()))
}

// clear makes room for a file: it removes what is at its path, and files at the paths of its folders.
func (w *Tree) clear(name string) {
	w.T.Helper()
	w.Remove(name)
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(w.Path(dir)); err == nil && !info.IsDir() {
			w.Remove(dir)
		}
	}
}

// run runs an operation and kills it after a while. It returns how long the operation took, and whether it was complete.
func (k *Kills) run(t *testing.T, op, root string, after time.Duration) (took time.Duration, finished bool) {
	t.Helper()
	cmd := k.Command(op, root)
	var out strings.Builder
	cmd.Stderr = &out
	began := time.Now()
	testkit.Must(t, cmd.Start())
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	if k.Killed != nil {
		k.Killed()
	}
	if status, ok := errors.AsType[*exec.ExitError](err); ok && status.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return time.Since(began), false
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", op, err, out.String())
	}
	return time.Since(began), true
}

// Pushes kills pushes of a changing folder: the store has the old tree or the new one, and the next push finishes.
func (k *Kills) Pushes(t *testing.T) {
	a := New(t)
	random := rand.New(rand.NewPCG(1, 2))
	Fill(a)
	a.Push(k.Store, k.Options...)
	stir(a, random, k.Flat)
	took, _ := k.run(t, "push", a.Dir, time.Minute)
	ended, before := 0, a.List()
	for i := range k.Rounds {
		stir(a, random, k.Flat)
		if _, finished := k.run(t, "push", a.Dir, time.Duration(random.Int64N(int64(took)*5/4))); finished {
			ended++
		}
		seen := New(t)
		seen.Pull(k.Store)
		after := a.List()
		if got := seen.List(); !slices.Equal(got, before) && !slices.Equal(got, after) {
			t.Fatalf("round %d: the store has neither the old tree nor the new one (-want +got); old:\n%s\nnew:\n%s",
				i, Differences(before, got), Differences(after, got))
		}
		if r := a.Push(k.Store, k.Options...); len(r.Notes) > 0 {
			t.Errorf("round %d: notes of the next push = %q, want none", i, r.Notes)
		}
		seen.Pull(k.Store)
		if d := Differences(a.List(), seen.List()); d != "" {
			t.Fatalf("round %d: the tree after the next push differs (-want +got):\n%s", i, d)
		}
		if d := k.differences(t, a); d != "" {
			t.Fatalf("round %d: the plain files differ (-want +got):\n%s", i, d)
		}
		a.WantNoLeftovers()
		if k.After != nil {
			k.After()
		}
		before = after
		seen.Must(os.RemoveAll(seen.Dir))
	}
	t.Logf("%d operations ended before they were killed", ended)
}

// Pulls kills pulls of a changing workspace: the next pull finishes.
func (k *Kills) Pulls(t *testing.T) {
	a, b := New(t), New(t)
	random := rand.New(rand.NewPCG(3, 4))
	Fill(a)
	a.Push(k.Store, k.Options...)
	k.run(t, "pull", b.Dir, time.Minute)
	stir(a, random, k.Flat)
	a.Push(k.Store, k.Options...)
	took, _ := k.run(t, "pull", b.Dir, time.Minute)
	ended := 0
	for i := range k.Rounds {
		stir(a, random, k.Flat)
		a.Push(k.Store, k.Options...)
		if i%10 == 9 { // sometimes into an empty folder
			b.Must(os.RemoveAll(b.Dir))
			b.Must(os.Mkdir(b.Dir, 0o755))
		}
		if _, finished := k.run(t, "pull", b.Dir, time.Duration(random.Int64N(int64(took)*5/4))); finished {
			ended++
		}
		b.Pull(k.Store, k.Options...)
		Same(t, a, b)
	}
	t.Logf("%d operations ended before they were killed", ended)
}

func (k *Kills) differences(t *testing.T, a *Tree) string {
	t.Helper()
	if !k.Plain {
		return ""
	}
	return PlainDifferences(t, k.Store, a)
}

// PlainDifferences returns where the files that other tools see in the plain layout differ from the folder.
func PlainDifferences(t *testing.T, s objectstore.Store, a *Tree) string {
	t.Helper()
	there := New(t)
	for info, err := range s.List(t.Context(), "") {
		a.Must(err)
		if strings.HasPrefix(info.Key, state.ReservedName) {
			continue
		}
		data, _, err := s.Get(t.Context(), info.Key, objectstore.Range{}, nil)
		a.Must(err)
		there.Write(info.Key, string(data))
	}
	return Differences(filesOf(a), filesOf(there))
}

// filesOf returns the listing without folders. Only the state has the empty ones.
func filesOf(w *Tree) []string {
	return slices.DeleteFunc(w.List(), func(line string) bool { return strings.Contains(line, "\" d") })
}
