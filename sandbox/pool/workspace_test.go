package pool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestNewRefusesInvalidConfig(t *testing.T) {
	inner := newLocal(t)
	for what, c := range map[string]Config{
		"no provider": {Dir: "/p"}, "no folder": {Provider: inner}, "relative": {Provider: inner, Dir: "p"},
		"max": {Provider: inner, Dir: "/p", Max: -1}, "size": {Provider: inner, Dir: "/p", Templates: []Template{{Size: -1}}},
		"twice": {Provider: inner, Dir: "/p", Templates: []Template{{Size: 1}, {Size: 2}}},
	} {
		if _, err := New(c); schemas.CodeOf(err) != schemas.CodeInvalidArgument {
			t.Errorf("%s: error %v, want code %s", what, err, schemas.CodeInvalidArgument)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	_, err := New(Config{Provider: inner, Dir: file})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
}

// makeFolders makes a pool's folder with a member's folder in it, and a workspace of two files.
func makeFolders(t *testing.T) (dir, member, workspace string) {
	t.Helper()
	root := t.TempDir()
	dir, workspace = filepath.Join(root, "pool"), filepath.Join(root, "ws")
	member = filepath.Join(dir, "pool-1")
	testkit.Must(t, os.MkdirAll(member, 0o700))
	testkit.Must(t, os.Mkdir(workspace, 0o750))
	for _, name := range []string{"a", "b"} {
		testkit.Must(t, os.WriteFile(filepath.Join(workspace, name), []byte(name), 0o600))
	}
	return dir, member, workspace
}

// wantWorkspace checks that the workspace has both files, and that the pool's folder is empty.
func wantWorkspace(t *testing.T, dir, workspace string) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		b, err := os.ReadFile(filepath.Join(workspace, name))
		testkit.Must(t, err)
		testkit.Equal(t, "content of "+name, string(b), name)
	}
	wantEmpty(t, dir)
}

func TestReplaceWorkspaceKeepsMode(t *testing.T) {
	dir, member, workspace := makeFolders(t)
	testkit.Must(t, replaceWorkspace(member, workspace, dir))
	wantWorkspace(t, dir, workspace)
	info, err := os.Stat(workspace)
	testkit.Must(t, err)
	testkit.Equal(t, "mode", info.Mode().Perm(), os.FileMode(0o750))
}

func TestReplaceWorkspaceRestoresContentAfterFailure(t *testing.T) {
	dir, member, workspace := makeFolders(t)
	testkit.Must(t, os.Mkdir(filepath.Join(member, "b"), 0o700)) // a file cannot replace this folder
	if err := replaceWorkspace(member, workspace, dir); err == nil {
		t.Fatal("replaceWorkspace succeeded, want an error")
	}
	for _, name := range []string{"a", "b"} {
		_, err := os.Lstat(filepath.Join(workspace, name))
		testkit.Must(t, err)
	}
}

// A claim is interrupted at each of its steps.
func TestNewRevertsInterruptedClaim(t *testing.T) {
	claim := func(member, text string) error { return os.WriteFile(member+claimSuffix, []byte(text), 0o600) }
	for what, interrupt := range map[string]func(member, workspace string) error{
		"before":                  func(string, string) error { return nil },
		"claim file half written": func(member, workspace string) error { return claim(member, workspace[:5]) },
		"empty claim file":        func(member, _ string) error { return claim(member, "") },
		"claim file written":      func(member, workspace string) error { return claim(member, workspace) },
		"one file moved": func(member, workspace string) error {
			return errors.Join(claim(member, workspace), os.Rename(filepath.Join(workspace, "a"), filepath.Join(member, "a")))
		},
		"all moved": func(member, workspace string) error {
			return errors.Join(claim(member, workspace), moveContent(workspace, member))
		},
		"renamed": func(member, workspace string) error {
			return errors.Join(claim(member, workspace), moveContent(workspace, member), os.Remove(workspace), os.Rename(member, workspace))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir, member, workspace := makeFolders(t)
			testkit.Must(t, interrupt(member, workspace))
			p, err := New(Config{Provider: newLocal(t), Dir: dir})
			testkit.Must(t, err)
			wantWorkspace(t, dir, workspace)
			testkit.Must(t, p.Close())
		})
	}
}
