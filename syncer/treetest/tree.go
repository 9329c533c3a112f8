package treetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/packed"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
)

// Tree is a folder of a test. Its methods end the test on an error.
type Tree struct {
	T   testing.TB
	Dir string
}

// New returns an empty folder.
func New(t testing.TB) *Tree { return &Tree{t, t.TempDir()} }

// Root makes and returns the folder root in the folder.
func (w *Tree) Root() *Tree {
	w.T.Helper()
	w.Mkdir("root")
	return &Tree{w.T, w.Path("root")}
}

// WantOnlyRoot ends the test when the folder has more than the folder that Root has made.
func (w *Tree) WantOnlyRoot() {
	w.T.Helper()
	entries, err := os.ReadDir(w.Dir)
	w.Must(err)
	if len(entries) != 1 {
		w.T.Fatalf("entries = %v, want the root alone", entries)
	}
}

// Path returns the path of a name in the folder.
func (w *Tree) Path(name string) string { return filepath.Join(w.Dir, name) }

// Must ends the test when err is not nil.
func (w *Tree) Must(err error) { w.T.Helper(); testkit.Must(w.T, err) }

// Write writes a file, and makes its folders.
func (w *Tree) Write(name, data string) {
	w.T.Helper()
	w.Must(os.MkdirAll(filepath.Dir(w.Path(name)), 0o755))
	w.Must(os.WriteFile(w.Path(name), []byte(data), 0o644))
}

// Mkdir makes a folder and those above it.
func (w *Tree) Mkdir(name string) { w.T.Helper(); w.Must(os.MkdirAll(w.Path(name), 0o755)) }

// Symlink makes a symlink to target.
func (w *Tree) Symlink(target, name string) { w.T.Helper(); w.Must(os.Symlink(target, w.Path(name))) }

// Chmod sets a mode.
func (w *Tree) Chmod(name string, mode fs.FileMode) {
	w.T.Helper()
	w.Must(os.Chmod(w.Path(name), mode))
}

// Read returns a file's content.
func (w *Tree) Read(name string) string {
	w.T.Helper()
	data, err := os.ReadFile(w.Path(name))
	w.Must(err)
	return string(data)
}

// Remove removes a path and everything below it.
func (w *Tree) Remove(name string) {
	w.T.Helper()
	if err := os.RemoveAll(w.Path(name)); !errors.Is(err, syscall.ENOTDIR) {
		w.Must(err)
	}
}

// Want fails the test when the file has other content.
func (w *Tree) Want(name, want string) {
	w.T.Helper()
	testkit.Equal(w.T, name, w.Read(name), want)
}

// WantExists fails the test when the path exists and should not, or the reverse.
func (w *Tree) WantExists(name string, want bool) {
	w.T.Helper()
	if _, err := os.Lstat(w.Path(name)); (err == nil) != want {
		w.T.Errorf("%s exists = %t, want %t (error: %v)", name, err == nil, want, err)
	}
}

// WantNoLeftovers fails the test when the root has more of Sluice's own files than the state file and the index.
func (w *Tree) WantNoLeftovers() {
	w.T.Helper()
	entries, err := os.ReadDir(w.Dir)
	w.Must(err)
	for _, e := range entries {
		n := e.Name()
		if strings.HasPrefix(n, state.ReservedName) && n != state.ReservedName && n != state.ReservedName+".index" && n != state.ReservedName+".tie" {
			w.T.Errorf("left behind in the folder: %s", n)
		}
	}
}

// List returns a line for each path, with everything that a sync carries, except Sluice's own files.
func (w *Tree) List() []string { w.T.Helper(); return w.list(false) }

// ListWithTimes is List with the times of files.
func (w *Tree) ListWithTimes() []string { w.T.Helper(); return w.list(true) }

func (w *Tree) list(times bool) (lines []string) {
	w.T.Helper()
	w.Must(filepath.WalkDir(w.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(w.Dir, path)
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
			size, digest, err := digestOf(path, info.Size())
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", size, digest)
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
	}))
	return lines
}

// Objects returns what other tools see in the store, with tokens: everything except Sluice's own, but with the state.
func Objects(t testing.TB, store objectstore.Store) (lines []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), "") {
		testkit.Must(t, err)
		if !strings.HasPrefix(info.Key, state.ReservedName+".d/") {
			lines = append(lines, info.Key+" "+info.Token)
		}
	}
	return lines
}

// Same ends the test when the trees differ in anything that a sync carries.
func Same(t testing.TB, want, got *Tree) {
	t.Helper()
	if d := Differences(want.List(), got.List()); d != "" {
		t.Fatalf("the trees differ (-want +got):\n%s", d)
	}
}

// digestOf returns the size and the SHA-256 of a file of about the expected size. It reads piece by piece: large files in memory are slow
// under the race detector.
func digestOf(path string, expected int64) (size int64, digest []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	size, err = io.CopyBuffer(sum, struct{ io.Reader }{f}, make([]byte, min(expected+1, 64<<10)))
	return size, sum.Sum(nil), err
}

// Differences returns the lines that only one of two lists has: with "-" those of want, with "+" those of got.
func Differences(want, got []string) string {
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

// Option changes the configuration of a sync.
type Option func(*syncer.Config)

// OnConflict settles conflicts.
func OnConflict(c plan.OnConflict) Option { return func(cfg *syncer.Config) { cfg.OnConflict = c } }

// Layout stores a new workspace in a layout.
func Layout(l state.Layout) Option { return func(cfg *syncer.Config) { cfg.Layout = l } }

// Layouts runs a test for both layouts. The test passes o to its first push.
func Layouts(t *testing.T, test func(t *testing.T, o Option)) {
	for _, l := range []state.Layout{state.Packed, state.Plain} {
		t.Run(string(l), func(t *testing.T) { test(t, Layout(l)) })
	}
}

// ApartSuffix ends the path of the folder in which [Apart] keeps a sync's own files.
const ApartSuffix = ".sync"

// Apart keeps a sync's own files beside the folder, as a worker does.
func Apart(cfg *syncer.Config) { cfg.OwnDir = cfg.Root + ApartSuffix }

// apart is the packed layout with [Apart].
const apart = "apart"

// segments is a form of the packed layout: small trees are stored as long ones are.
const segments = "segments"

// Form returns the option of a form: a layout, or the packed one with states in segments or with a sync's own files beside the folder.
func Form(name string) Option {
	return func(cfg *syncer.Config) {
		if cfg.Layout = state.Layout(name); name == apart {
			cfg.Layout = state.Packed
			Apart(cfg)
		} else if name == segments {
			cfg.Layout, cfg.Sizes = state.Packed, packed.StateSizes{Whole: 1, Root: 900, Entries: 3, Object: 900, Objects: 12}
		}
	}
}

// Forms runs a test for each form.
func Forms(t *testing.T, test func(t *testing.T, form string)) {
	for _, form := range []string{string(state.Packed), string(state.Plain), segments, apart} {
		t.Run(form, func(t *testing.T) { test(t, form) })
	}
}

// Syncer returns a syncer of the folder with store.
func (w *Tree) Syncer(store objectstore.Store, options ...Option) *syncer.Syncer {
	w.T.Helper()
	cfg := syncer.Config{Root: w.Dir, Store: store, Remote: "test://store"}
	for _, o := range options {
		o(&cfg)
	}
	s, err := syncer.New(cfg)
	w.Must(err)
	return s
}

// Push pushes the folder.
func (w *Tree) Push(store objectstore.Store, options ...Option) *syncer.Report {
	w.T.Helper()
	r, err := w.Syncer(store, options...).Push(w.T.Context())
	w.Must(err)
	return r
}

// Pull pulls into the folder. It fails the test when the pull leaves temporary files.
func (w *Tree) Pull(store objectstore.Store, options ...Option) *syncer.Report {
	w.T.Helper()
	r, err := w.Syncer(store, options...).Pull(w.T.Context())
	w.Must(err)
	w.WantNoLeftovers()
	return r
}

// Carry pushes the folder with the options and pulls it into another, and ends the test when the two differ then.
func (w *Tree) Carry(store objectstore.Store, to *Tree, options ...Option) {
	w.T.Helper()
	w.Push(store, options...)
	to.Pull(store)
	Same(w.T, w, to)
}

// PushAndPull returns both operations.
func PushAndPull() []func(*syncer.Syncer, context.Context) (*syncer.Report, error) {
	return []func(*syncer.Syncer, context.Context) (*syncer.Report, error){(*syncer.Syncer).Push, (*syncer.Syncer).Pull}
}

// PutState stores data as the state of a workspace.
func PutState(t testing.TB, store objectstore.Store, data []byte) {
	t.Helper()
	_, err := store.Put(t.Context(), state.ReservedName, objectstore.Bytes(data), objectstore.Condition{})
	testkit.Must(t, err)
}
