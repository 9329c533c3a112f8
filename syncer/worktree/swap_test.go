package worktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// TestSettlePutsBackWhatWasWrittenLate writes through a descriptor that was opened before the file was replaced or removed. Sync 2.
func TestSettlePutsBackWhatWasWrittenLate(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	defer root.Close()
	for _, name := range []string{"d/replaced", "d/removed", "d/untouched"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600))
	}
	stage, err := worktree.NewStage(root)
	testkit.Must(t, err)
	swap := worktree.NewSwapper(root, stage)
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		testkit.Must(t, err)
		return f
	}
	replaced, removed := open("d/replaced"), open("d/removed")
	same := func(worktree.Stat) bool { return true }
	for _, name := range []string{"d/replaced", "d/untouched"} {
		staged := stage.NewPath("x")
		testkit.Must(t, root.WriteFile(staged, []byte("new"), 0o600))
		testkit.Must(t, swap.Replace(staged, name, same))
	}
	testkit.Must(t, swap.Remove("d/removed", same))
	for _, f := range []*os.File{replaced, removed} {
		_, err := f.WriteString("mine, late")
		testkit.Must(t, errors.Join(err, f.Close()))
	}
	changed, err := swap.Settle()
	testkit.Must(t, err)
	testkit.Equal(t, "changed", changed, []string{"d/replaced", "d/removed"})
	testkit.Must(t, errors.Join(swap.Close(), stage.Remove()))
	for name, want := range map[string]string{"d/replaced": "mine, late", "d/removed": "mine, late", "d/untouched": "new"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		testkit.Must(t, err)
		testkit.Equal(t, name, string(got), want)
	}
}

// TestSwapperLeavesWhatChanged replaces, removes and places where something else is now. Sync 2.
func TestSwapperLeavesWhatChanged(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	defer root.Close()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("mine"), 0o600))
	stage, err := worktree.NewStage(root)
	testkit.Must(t, err)
	swap := worktree.NewSwapper(root, stage)
	defer func() { testkit.Must(t, swap.Close()) }()
	staged := stage.NewPath("x")
	testkit.Must(t, root.WriteFile(staged, []byte("new"), 0o600))
	changed := func(worktree.Stat) bool { return false }
	for what, err := range map[string]error{
		"place": swap.Place(staged, "f"), "replace": swap.Replace(staged, "f", changed), "remove": swap.Remove("f", changed),
		"remove folder": swap.RemoveFolder("f"), "no folder": swap.Place(staged, "no/f"),
	} {
		if !errors.Is(err, worktree.ErrChanged) {
			t.Errorf("%s: error = %v, want that it changed", what, err)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "f"))
	testkit.Must(t, err)
	testkit.Equal(t, "file", string(got), "mine")
}
