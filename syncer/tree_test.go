package syncer_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { testkit.Main(m, testkit.Programs{childProgram: child}) }

// tree is a folder of a test.
type tree struct {
	t   testing.TB
	dir string
}

func newTree(t testing.TB) *tree { return &tree{t, t.TempDir()} }

func (w *tree) path(name string) string { return filepath.Join(w.dir, name) }

func (w *tree) must(err error) { w.t.Helper(); testkit.Must(w.t, err) }

func (w *tree) write(name, data string) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Dir(w.path(name)), 0o755))
	w.must(os.WriteFile(w.path(name), []byte(data), 0o644))
}

func (w *tree) mkdir(name string)        { w.t.Helper(); w.must(os.MkdirAll(w.path(name), 0o755)) }
func (w *tree) link(target, name string) { w.t.Helper(); w.must(os.Symlink(target, w.path(name))) }
func (w *tree) chmod(n string, m uint32) { w.t.Helper(); w.must(os.Chmod(w.path(n), fs.FileMode(m))) }

func (w *tree) rename(from, to string) { w.t.Helper(); w.must(os.Rename(w.path(from), w.path(to))) }
func (w *tree) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	w.must(err)
	return string(data)
}

func (w *tree) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(w.path(name)); !errors.Is(err, syscall.ENOTDIR) {
		w.must(err)
	}
}

// want fails the test when the file has other content.
func (w *tree) want(name, want string) {
	w.t.Helper()
	testkit.Equal(w.t, name, w.read(name), want)
}

func (w *tree) wantExists(name string, want bool) {
	w.t.Helper()
	if _, err := os.Lstat(w.path(name)); (err == nil) != want {
		w.t.Errorf("%s exists = %t, want %t (error: %v)", name, err == nil, want, err)
	}
}

// listing returns a line for each path, with everything that a sync carries, except Sluice's own files.
func (w *tree) listing() []string {
	w.t.Helper()
	return list(w.t, w.dir, false)
}

// wantNoLeftovers fails the test when the root has more of Sluice's own files than the state file and the index.
func (w *tree) wantNoLeftovers() {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	w.must(err)
	for _, e := range entries {
		n := e.Name()
		if strings.HasPrefix(n, state.ReservedName) && n != state.ReservedName && n != state.ReservedName+".index" {
			w.t.Errorf("left behind in the folder: %s", n)
		}
	}
}

func list(t testing.TB, dir string, times bool) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		if strings.HasPrefix(name, state.ReservedName) {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%q %s", name, info.Mode())
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", len(data), sha256.Sum256(data))
			if times {
				line += info.ModTime().UTC().Format(time.RFC3339Nano)
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func sameTrees(t testing.TB, a, b *tree) {
	t.Helper()
	if d := differences(a.listing(), b.listing()); d != "" {
		t.Fatalf("the trees differ (-want +got):\n%s", d)
	}
}

// differences returns the lines that only one of two listings has: with "-" those of want, with "+" those of got.
func differences(want, got []string) string {
	var lines []string
	for _, line := range want {
		if !slices.Contains(got, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return strings.Join(lines, "\n")
}

type option func(*syncer.Config)

func on(c syncer.OnConflict) option { return func(cfg *syncer.Config) { cfg.OnConflict = c } }
func layout(l syncer.Layout) option { return func(cfg *syncer.Config) { cfg.Layout = l } }

func (w *tree) syncer(store syncer.Store, options ...option) *syncer.Syncer {
	w.t.Helper()
	cfg := syncer.Config{Root: w.dir, Store: store, Remote: "test://store"}
	for _, o := range options {
		o(&cfg)
	}
	s, err := syncer.New(cfg)
	w.must(err)
	return s
}

func (w *tree) push(store syncer.Store, options ...option) *syncer.Report {
	w.t.Helper()
	r, err := w.syncer(store, options...).Push(w.t.Context())
	w.must(err)
	return r
}

func (w *tree) pull(store syncer.Store, options ...option) *syncer.Report {
	w.t.Helper()
	r, err := w.syncer(store, options...).Pull(w.t.Context())
	w.must(err)
	w.wantNoLeftovers()
	return r
}

func newStore() *storetest.Memory { return &storetest.Memory{} }
