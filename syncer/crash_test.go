package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// childProgram is the first argument of a process that a test starts and kills. Its further arguments are the operation, the
// folder, the folder of the store, the layout, and the phase in which the process kills itself after the first file, "" for none, or,
// after a colon, after a number of bytes.
const childProgram = "sync"

func child(args []string) int {
	op, root, folder, layout := args[0], args[1], args[2], args[3]
	last, after, _ := strings.Cut(args[4], ":")
	bytes, _ := strconv.ParseInt(after, 10, 64) // 0 for none
	store, err := dirstore.Open(folder)
	if err != nil {
		return testkit.Fail(err)
	}
	s, err := syncer.New(syncer.Config{Root: root, Store: store, Remote: "test://store", Layout: state.Layout(layout),
		Progress: func(p syncer.Progress) {
			if p.Phase == last && p.Bytes >= bytes {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}})
	if err == nil && op == "push" {
		_, err = s.Push(context.Background())
	} else if at, ok := strings.CutPrefix(op, "pull@"); err == nil && ok {
		_, err = s.PullAt(context.Background(), at)
	} else if err == nil {
		_, err = s.Pull(context.Background())
	}
	if err != nil {
		return testkit.Fail(err)
	}
	return 0
}

// killed runs an operation in its own process and kills that after a while. It returns how long the operation took, and
// whether it was complete.
func killed(t *testing.T, o treetest.Option, op, root, store string, after time.Duration) (took time.Duration, finished bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], childProgram, op, root, store, string(layoutOf(o)), "")
	var out strings.Builder
	cmd.Stderr = &out
	began := time.Now()
	testkit.Must(t, cmd.Start())
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	if err != nil && out.Len() > 0 {
		t.Fatalf("%s: %v: %s", op, err, out.String())
	}
	return time.Since(began), err == nil
}

// stir changes a few paths of a tree at random: contents, kinds, folders and names.
func stir(w *treetest.Tree, random *rand.Rand) {
	for range 4 {
		name := fmt.Sprintf("d%d/f%d", random.IntN(4), random.IntN(8))
		switch random.IntN(7) {
		case 0:
			w.Remove(name)
		case 1:
			w.Remove(name)
			w.Remove(filepath.Dir(name))
		case 2:
			clearPath(w, name)
			w.Write(name+"/below", strconv.Itoa(random.Int()))
		case 3:
			w.Remove(filepath.Dir(name))
			w.Write(filepath.Dir(name), strconv.Itoa(random.Int()))
		case 4:
			clearPath(w, name)
			w.Write(name, strings.Repeat(strconv.Itoa(random.Int()), 100_000))
		default:
			clearPath(w, name)
			w.Write(name, strconv.Itoa(random.Int()))
		}
	}
	clearPath(w, "always")
	w.Write("always", strconv.Itoa(random.Int()))
}

// clear makes room for a file: it removes what is at its path, and files at the paths of its folders.
func clearPath(w *treetest.Tree, name string) {
	w.T.Helper()
	w.Remove(name)
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(w.Path(dir)); err == nil && !info.IsDir() {
			w.Remove(dir)
		}
	}
}

func noTemps(t *testing.T, store string) {
	t.Helper()
	s := openDir(t, store) // removes what killed writers left
	defer closeDir(t, s)
	entries, err := os.ReadDir(filepath.Join(store, ".dirstore"))
	if !errors.Is(err, fs.ErrNotExist) {
		testkit.Must(t, err)
	}
	for _, e := range entries {
		t.Errorf("left behind in the store: %s", e.Name())
	}
}

func openDir(t testing.TB, dir string) *dirstore.Store {
	t.Helper()
	s, err := dirstore.Open(dir)
	testkit.Must(t, err)
	return s
}

func closeDir(t testing.TB, s *dirstore.Store) { t.Helper(); testkit.Must(t, s.Close()) }

func fill(w *treetest.Tree) {
	for i := range 60 {
		w.Write(fmt.Sprintf("d%d/f%d", i%4, i/4), strings.Repeat(strconv.Itoa(i), 2000))
	}
	w.Write("large", strings.Repeat("x", 9<<20))
}

func TestKilledPushLeavesOldOrNewTree(t *testing.T) { treetest.Layouts(t, pushIsKilled) }

func pushIsKilled(t *testing.T, o treetest.Option) {
	a, store := treetest.New(t), t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	fill(a)
	killed(t, o, "push", a.Dir, store, time.Minute)
	stir(a, random)
	took, _ := killed(t, o, "push", a.Dir, store, time.Minute)
	ended, before := 0, a.List()
	for i := range treetest.Rounds(5, 200) {
		stir(a, random)
		_, finished := killed(t, o, "push", a.Dir, store, time.Duration(random.Int64N(int64(took)*5/4)))
		if finished {
			ended++
		}
		s := openDir(t, store)
		seen := treetest.New(t)
		seen.Pull(s)
		after := a.List()
		if got := seen.List(); !slices.Equal(got, before) && !slices.Equal(got, after) {
			t.Fatalf("round %d: the store has neither the old tree nor the new one (-want +got); old:\n%s\nnew:\n%s",
				i, treetest.Differences(before, got), treetest.Differences(after, got))
		}
		if r := a.Push(s); len(r.Notes) > 0 {
			t.Errorf("round %d: notes of the next push = %q, want none", i, r.Notes)
		}
		seen.Pull(s)
		if d := treetest.Differences(a.List(), seen.List()); d != "" {
			t.Fatalf("round %d: the tree after the next push differs (-want +got):\n%s", i, d)
		}
		if d := plainDifferences(t, o, s, a); d != "" {
			t.Fatalf("round %d: the plain files differ (-want +got):\n%s", i, d)
		}
		a.WantNoLeftovers()
		closeDir(t, s)
		noTemps(t, store)
		before = after
		seen.Must(os.RemoveAll(seen.Dir))
	}
	t.Logf("%d operations ended before they were killed", ended)
}

func TestPullContinuesKilledPull(t *testing.T) { treetest.Layouts(t, pullIsKilled) }

func pullIsKilled(t *testing.T, o treetest.Option) {
	a, b, store := treetest.New(t), treetest.New(t), t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	fill(a)
	s := openDir(t, store)
	defer closeDir(t, s)
	a.Push(s, o)
	killed(t, o, "pull", b.Dir, store, time.Minute)
	stir(a, random)
	a.Push(s)
	took, _ := killed(t, o, "pull", b.Dir, store, time.Minute)
	ended := 0
	for i := range treetest.Rounds(5, 200) {
		stir(a, random)
		a.Push(s)
		if i%10 == 9 { // sometimes into an empty folder
			b.Must(os.RemoveAll(b.Dir))
			b.Must(os.Mkdir(b.Dir, 0o755))
		}
		if _, finished := killed(t, o, "pull", b.Dir, store, time.Duration(random.Int64N(int64(took)*5/4))); finished {
			ended++
		}
		b.Pull(s)
		treetest.Same(t, a, b)
	}
	t.Logf("%d operations ended before they were killed", ended)
}

// plainDifferences returns where the files that other tools see in the plain layout differ from the folder.
func plainDifferences(t *testing.T, o treetest.Option, s objectstore.Store, a *treetest.Tree) string {
	t.Helper()
	if layoutOf(o) == state.Packed {
		return ""
	}
	there := treetest.New(t)
	for info, err := range s.List(t.Context(), "") {
		a.Must(err)
		if strings.HasPrefix(info.Key, state.ReservedName) {
			continue
		}
		data, _, err := s.Get(t.Context(), info.Key, objectstore.Range{}, nil)
		a.Must(err)
		there.Write(info.Key, string(data))
	}
	return treetest.Differences(filesOf(a), filesOf(there))
}

// filesOf returns the listing without folders. Only the state has the empty ones.
func filesOf(w *treetest.Tree) []string {
	return slices.DeleteFunc(w.List(), func(line string) bool { return strings.Contains(line, "\" d") })
}
