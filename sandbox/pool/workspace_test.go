package pool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

func TestConfig(t *testing.T) {
	inner := newLocal(t)
	for what, c := range map[string]Config{
		"no provider": {Dir: "/p"}, "no folder": {Provider: inner}, "relative": {Provider: inner, Dir: "p"},
		"max": {Provider: inner, Dir: "/p", Max: -1}, "size": {Provider: inner, Dir: "/p", Templates: []Template{{Size: -1}}},
		"twice": {Provider: inner, Dir: "/p", Templates: []Template{{Size: 1}, {Size: 2}}},
	} {
		if _, err := New(c); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", what, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Provider: inner, Dir: file}); !errors.Is(err, schemas.ErrUnavailable) {
		t.Error(err)
	}
}

// tree makes a pool's folder with a member's, and a workspace of two files.
func tree(t *testing.T) (dir, member, workspace string) {
	t.Helper()
	root := t.TempDir()
	dir, workspace = filepath.Join(root, "pool"), filepath.Join(root, "ws")
	member = filepath.Join(dir, "pool-1")
	for _, err := range []error{
		os.MkdirAll(member, 0o700), os.Mkdir(workspace, 0o750), os.WriteFile(filepath.Join(workspace, "a"), []byte("a"), 0o600),
		os.WriteFile(filepath.Join(workspace, "b"), []byte("b"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, member, workspace
}

// whole fails unless the workspace has both files and the pool's folder nothing.
func whole(t *testing.T, dir, workspace string) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		if b, err := os.ReadFile(filepath.Join(workspace, name)); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestPlaceKeepsTheMode(t *testing.T) {
	dir, member, workspace := tree(t)
	if err := place(member, workspace, dir); err != nil {
		t.Fatal(err)
	}
	whole(t, dir, workspace)
	if info, err := os.Stat(workspace); err != nil || info.Mode().Perm() != 0o750 {
		t.Error(info, err)
	}
}

// TestPlaceFails: what cannot be moved leaves the workspace as it was.
func TestPlaceFails(t *testing.T) {
	dir, member, workspace := tree(t)
	// A folder in the way of a file of the same name, as only a fault would put there.
	if err := os.Mkdir(filepath.Join(member, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := place(member, workspace, dir); err == nil {
		t.Fatal("placed")
	}
	if err := os.Remove(member); err != nil && !os.IsNotExist(err) {
		t.Log(err)
	}
	for _, name := range []string{"a", "b"} {
		if _, err := os.Lstat(filepath.Join(workspace, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestRecover cuts a claim short at each of its steps.
func TestRecover(t *testing.T) {
	note := func(member, text string) error { return os.WriteFile(member+noteSuffix, []byte(text), 0o600) }
	for what, cut := range map[string]func(member, workspace string) error{
		"before":     func(string, string) error { return nil },
		"note begun": func(member, workspace string) error { return note(member, workspace[:5]) },
		"empty note": func(member, _ string) error { return note(member, "") },
		"noted":      func(member, workspace string) error { return note(member, workspace) },
		"one file moved": func(member, workspace string) error {
			return errors.Join(note(member, workspace), os.Rename(filepath.Join(workspace, "a"), filepath.Join(member, "a")))
		},
		"all moved": func(member, workspace string) error {
			return errors.Join(note(member, workspace), move(workspace, member))
		},
		"renamed": func(member, workspace string) error {
			return errors.Join(note(member, workspace), move(workspace, member), os.Remove(workspace), os.Rename(member, workspace))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, member, workspace := tree(t)
			if err := cut(member, workspace); err != nil {
				t.Fatal(err)
			}
			p, err := New(Config{Provider: newLocal(t), Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}()
			whole(t, dir, workspace)
		})
	}
}
