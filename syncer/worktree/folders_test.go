package worktree_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/worktree"
)

// TestReplacedPathsAreGone replaces what was listed before it is read: a file by what is none, and its folder by a file. Nothing waits
// for the other end of a fifo.
func TestReplacedPathsAreGone(t *testing.T) {
	for name, replace := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"a folder": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "f"), 0o755) },
		"a fifo": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), unix.Mkfifo(filepath.Join(dir, "f"), 0o600))
		},
		"in a file":       func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"in a new folder": func(dir string) error { return os.Mkdir(dir, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			root, err := os.OpenRoot(top)
			testkit.Must(t, err)
			defer root.Close()
			testkit.Must(t, os.Mkdir(filepath.Join(top, "other"), 0o755))
			testkit.Must(t, os.WriteFile(filepath.Join(top, "other", "f"), []byte("other"), 0o600))
			dir := filepath.Join(top, "d")
			testkit.Must(t, replace(dir))
			in := worktree.NewFolders(root)
			defer func() { testkit.Must(t, in.Close()) }()
			c, err := worktree.HashFile(in, "d/f", make([]byte, 100), &worktree.Hasher{})
			if !worktree.IsGone(err) {
				t.Errorf("read %d bytes, error %v; want one for a path that is gone", c.Stat.Size, err)
			}
			_, err = worktree.HashFile(in, "other/f", make([]byte, 100), &worktree.Hasher{})
			testkit.Must(t, err)
		})
	}
}
