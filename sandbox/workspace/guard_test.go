package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// fill puts so many files of a byte each into a folder.
func fill(t testing.TB, dir, name string, n int) {
	t.Helper()
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(name, i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func empty(t *testing.T, dir, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, name+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if err := os.RemoveAll(f); err != nil {
			t.Fatal(err)
		}
	}
}

func want(t *testing.T, what string, err error, limit bool) {
	t.Helper()
	if errors.Is(err, schemas.ErrLimitExceeded) != limit || (err != nil) != limit {
		t.Errorf("%s: %v", what, err)
	}
}

func TestGuard(t *testing.T) {
	dir := t.TempDir()
	g := NewGuard(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 3})
	want(t, "empty", g.Admit(), false)
	fill(t, dir, "a", 3)
	want(t, "full", g.Ended(), false)
	fill(t, dir, "b", 1)
	want(t, "while it grows", g.Look(), true)
	want(t, "still there", g.Look(), true)
	fill(t, dir, "c", 1)
	want(t, "when it ended", g.Ended(), true)
	want(t, "the next", g.Admit(), false)
	want(t, "which only looks", g.Look(), false)
	want(t, "and ends", g.Ended(), false)
	empty(t, dir, "c")
	want(t, "which removes some", g.Ended(), false)
	fill(t, dir, "d", 1)
	want(t, "which puts them back", g.Look(), true)
	for i := range maxStrikes {
		want(t, "before the last strike", g.Admit(), false)
		fill(t, dir, fmt.Sprint("e", i), 1)
		want(t, "a strike", g.Ended(), true)
	}
	want(t, "after the last", g.Admit(), true)
	empty(t, dir, "")
	want(t, "emptied", g.Admit(), false)
	want(t, "emptied", g.Ended(), false)
}

// TestGuardStrikesForgotten: whoever makes it smaller than it was begins anew, and not whoever takes back a little.
func TestGuardStrikesForgotten(t *testing.T) {
	dir := t.TempDir()
	g := NewGuard(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 3})
	fill(t, dir, "a", 100)
	want(t, "files that came in", g.Admit(), false)
	for i := range 3 * maxStrikes {
		want(t, "start", g.Admit(), false)
		fill(t, dir, "b", 1)
		want(t, "grown", g.Ended(), true)
		want(t, "start", g.Admit(), false)
		empty(t, dir, "b")
		empty(t, dir, fmt.Sprint("a", i, "0"))
		want(t, "shrunk", g.Ended(), false)
	}
	for i := range maxStrikes {
		want(t, "start", g.Admit(), false)
		fill(t, dir, fmt.Sprint("c", i), 10)
		want(t, "grown", g.Ended(), true)
		empty(t, dir, fmt.Sprintf("c%d0", i))
		want(t, "shrunk by a little", g.Ended(), false)
	}
	want(t, "in the end", g.Admit(), true)
}

func TestLimits(t *testing.T) {
	for what, tt := range map[string]struct {
		limits sandbox.Limits
		file   int
		over   bool
	}{
		"within":      {sandbox.Limits{WorkspaceBytes: 100, FileBytes: 100}, 100, false},
		"bytes":       {sandbox.Limits{WorkspaceBytes: 100, FileBytes: 1000}, 101, true},
		"one file":    {sandbox.Limits{WorkspaceBytes: 1000, FileBytes: 100}, 101, true},
		"its default": {sandbox.Limits{WorkspaceBytes: 1000}, 1000, false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, tt.file), 0o600); err != nil {
			t.Fatal(err)
		}
		g := NewGuard(func() string { return dir }, tt.limits)
		want(t, what, g.Ended(), tt.over)
	}
}

func TestMeasure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, outside, "x", 20)
	deep := filepath.Join(dir, strings.Repeat("d/", 100))
	for _, err := range []error{
		os.MkdirAll(deep, 0o700), os.Symlink(outside, filepath.Join(dir, "link")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.WriteFile(filepath.Join(deep, "f"), []byte("12345"), 0o600), os.Link(filepath.Join(deep, "f"), filepath.Join(dir, "g")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if u, err := Measure(dir); err != nil || u != (Usage{Bytes: 10, Largest: 5, Files: 104}) {
		t.Errorf("%+v, %v", u, err)
	}
	if u, err := Measure(filepath.Join(dir, "gone")); err != nil || u != (Usage{}) {
		t.Errorf("%+v, %v", u, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("e/", maxDepth+1)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Measure(dir); !errors.Is(err, schemas.ErrUnavailable) {
		t.Error(err)
	}
	g := NewGuard(func() string { return dir }, sandbox.Limits{})
	want(t, "too deep", g.Ended(), true)
}

// TestOwn: links are given away themselves, and what they lead to is not.
func TestOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run this as root: nobody else gives files away")
	}
	const uid, gid = 12345, 12346
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, nil, 0o600), os.Symlink(outside, filepath.Join(dir, "link")), os.MkdirAll(filepath.Join(dir, "a/b"), 0o700), Own(dir, uid, gid), Own(dir, uid, gid),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, theirs := range map[string]bool{dir: true, filepath.Join(dir, "link"): true, filepath.Join(dir, "a/b"): true, outside: false} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || (st.Uid == uid && st.Gid == gid) != theirs {
			t.Errorf("%s: %+v", path, info.Sys())
		}
	}
}
