package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
)

// The environment of a process that a test starts to be killed.
const (
	envOperation = "SLUICE_TEST_OPERATION"
	envRoot      = "SLUICE_TEST_ROOT"
	envStore     = "SLUICE_TEST_STORE"
	envLayout    = "SLUICE_TEST_LAYOUT"
)

// envChaos asks for the long form of the tests that break things.
const envChaos = "SLUICE_CHAOS"

// rounds is how often a test that breaks things does so.
func rounds(short, long int) int {
	if os.Getenv(envChaos) != "" {
		return long
	}
	return short
}

// childMain is the process that is to be killed. It says whether this process is one.
func childMain() bool {
	op := os.Getenv(envOperation)
	if op == "" {
		return false
	}
	store, err := dirstore.Open(os.Getenv(envStore))
	if err == nil {
		var s *syncer.Syncer
		s, err = syncer.New(syncer.Config{Root: os.Getenv(envRoot), Store: store, Remote: "test://store",
			Layout: syncer.Layout(os.Getenv(envLayout))})
		if err == nil && op == "push" {
			_, err = s.Push(context.Background())
		} else if err == nil {
			_, err = s.Pull(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

// killed runs an operation in a process of its own and kills that after a while. It says how long the operation took
// when it came to its end.
func killed(t *testing.T, o option, op, root, store string, after time.Duration) (took time.Duration, finished bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	var cfg syncer.Config
	o(&cfg)
	cmd.Env = append(os.Environ(), envOperation+"="+op, envRoot+"="+root, envStore+"="+store, envLayout+"="+string(cfg.Layout))
	var out strings.Builder
	cmd.Stderr = &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	if err != nil && out.Len() > 0 {
		t.Fatalf("%s: %v: %s", op, err, out.String())
	}
	return time.Since(began), err == nil
}

// stir changes a few paths of a tree at random: contents, kinds, folders, names.
func stir(w *tree, random *rand.Rand) {
	for range 4 {
		name := fmt.Sprintf("d%d/f%d", random.IntN(4), random.IntN(8))
		switch random.IntN(7) {
		case 0:
			w.remove(name)
		case 1:
			w.remove(name)
			w.remove(filepath.Dir(name))
		case 2:
			w.clear(name)
			w.write(name+"/below", strconv.Itoa(random.Int()))
		case 3:
			w.remove(filepath.Dir(name))
			w.write(filepath.Dir(name), strconv.Itoa(random.Int()))
		case 4:
			w.clear(name)
			w.write(name, strings.Repeat(strconv.Itoa(random.Int()), 100_000))
		default:
			w.clear(name)
			w.write(name, strconv.Itoa(random.Int()))
		}
	}
	w.clear("always")
	w.write("always", strconv.Itoa(random.Int()))
}

// clear makes room for a file: nothing at its path, and no file where its folders are to be.
func (w *tree) clear(name string) {
	w.t.Helper()
	w.remove(name)
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Lstat(w.path(dir)); err == nil && !info.IsDir() {
			w.remove(dir)
		}
	}
}

func noTemps(t *testing.T, store string) {
	t.Helper()
	s := openDir(t, store) // which sweeps
	defer closeDir(t, s)
	entries, err := os.ReadDir(filepath.Join(store, ".dirstore"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind in the store: %s", e.Name())
	}
}

func openDir(t testing.TB, dir string) *dirstore.Store {
	t.Helper()
	s, err := dirstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeDir(t testing.TB, s *dirstore.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func fill(w *tree) {
	for i := range 60 {
		w.write(fmt.Sprintf("d%d/f%d", i%4, i/4), strings.Repeat(strconv.Itoa(i), 2000))
	}
	w.write("large", strings.Repeat("x", 9<<20))
}

func same(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

func TestPushIsKilled(t *testing.T) { layouts(t, pushIsKilled) }

func pushIsKilled(t *testing.T, o option) {
	a, store := newTree(t), t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	fill(a)
	killed(t, o, "push", a.dir, store, time.Minute)
	stir(a, random)
	took, _ := killed(t, o, "push", a.dir, store, time.Minute)
	ended, before := 0, a.listing()
	for i := range rounds(5, 200) {
		stir(a, random)
		_, finished := killed(t, o, "push", a.dir, store, time.Duration(random.Int64N(int64(took)*5/4)))
		if finished {
			ended++
		}
		s := openDir(t, store)
		seen := newTree(t)
		seen.pull(s)
		after := a.listing()
		if got := seen.listing(); !same(got, before) && !same(got, after) {
			t.Fatalf("round %d: what was stored is neither the old tree nor the new one; before:\n%s\nafter:\n%s",
				i, differences(before, got), differences(after, got))
		}
		if r := a.push(s); len(r.Notes) > 0 {
			t.Errorf("round %d: the push that finished it: %q", i, r.Notes)
		}
		seen.pull(s)
		if d := differences(a.listing(), seen.listing()); d != "" {
			t.Fatalf("round %d: a pull of what the second push finished\n%s", i, d)
		}
		if d := nothingPending(t, o, s, a); d != "" {
			t.Fatalf("round %d: what other tools see\n%s", i, d)
		}
		if l := a.leftovers(); len(l) > 0 {
			t.Fatalf("round %d: left behind: %q", i, l)
		}
		closeDir(t, s)
		noTemps(t, store)
		before = after
		seen.must(os.RemoveAll(seen.dir))
	}
	t.Logf("%d came to their end before they were killed", ended)
}

func TestPullIsKilled(t *testing.T) { layouts(t, pullIsKilled) }

func pullIsKilled(t *testing.T, o option) {
	a, b, store := newTree(t), newTree(t), t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	fill(a)
	s := openDir(t, store)
	defer closeDir(t, s)
	a.push(s, o)
	killed(t, o, "pull", b.dir, store, time.Minute)
	stir(a, random)
	a.push(s)
	took, _ := killed(t, o, "pull", b.dir, store, time.Minute)
	ended := 0
	for i := range rounds(5, 200) {
		stir(a, random)
		a.push(s)
		if i%10 == 9 { // from nothing, now and then
			b.must(os.RemoveAll(b.dir))
			b.must(os.Mkdir(b.dir, 0o755))
		}
		if _, finished := killed(t, o, "pull", b.dir, store, time.Duration(random.Int64N(int64(took)*5/4))); finished {
			ended++
		}
		b.pull(s)
		sameTrees(t, a, b)
	}
	t.Logf("%d came to their end before they were killed", ended)
}

// nothingPending is for the plain layout: what other tools see is what the folder has. It says where it is not.
func nothingPending(t *testing.T, o option, s syncer.Store, a *tree) string {
	t.Helper()
	if isPacked(o) {
		return ""
	}
	there := newTree(t)
	for info, err := range s.List(t.Context(), "") {
		a.must(err)
		if strings.HasPrefix(info.Key, syncer.ReservedName) {
			continue
		}
		data, _, err := s.Get(t.Context(), info.Key, syncer.Range{}, nil)
		a.must(err)
		there.write(info.Key, string(data))
	}
	return differences(filesOf(a), filesOf(there))
}

// filesOf is the listing without the folders, of which an empty one is in the state alone.
func filesOf(w *tree) []string {
	return slices.DeleteFunc(w.listing(), func(line string) bool { return strings.Contains(line, "\" d") })
}
