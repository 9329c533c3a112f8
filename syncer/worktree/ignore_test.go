package worktree

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/patternmatcher"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func loadIgnore(t *testing.T, file string) (*Ignore, error) {
	t.Helper()
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, IgnoreFile), []byte(file), 0o600))
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	defer root.Close()
	return LoadIgnore(root, nil, nil)
}

// Hardening 1: an ignore file is written by a sandbox, and each of its patterns costs time for each path.
func TestIgnoreFileIsBounded(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"bytes":    strings.Repeat("?x\n", 1<<20/3),
		"patterns": strings.Repeat("?x\n", maxPatterns+1),
		"pattern":  strings.Repeat("?", maxPatternSize+1),
	} {
		_, err := loadIgnore(t, file)
		testkit.WantCode(t, err, schemas.CodeTooLarge)
		if !strings.Contains(err.Error(), IgnoreFile) {
			t.Errorf("%s: error %q does not name the file", name, err)
		}
	}
	_, err := loadIgnore(t, "[")
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

// Hardening 1: no match begins once its context has ended, in a file whose patterns are costly.
func TestMatchingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	begun := 0
	costly := rule{match: func(string) bool { begun++; cancel(); return false }}
	matchRules(ctx, []rule{costly, costly, costly}, "a")
	testkit.Equal(t, "matches", begun, 1)
}

// A walk and a listing end with their context.
func TestWalkEndsWithItsContext(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	testkit.Must(t, err)
	defer root.Close()
	for _, name := range []string{"a", "b", "c"} {
		testkit.Must(t, root.WriteFile(name, nil, 0o600))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := walker{root: root, Options: Options{Limit: 10}}
	if _, err := w.list(ctx, ".", new(folder)); err == nil {
		t.Error("a canceled listing has no error")
	}
	w.Limit = 2
	testkit.WantCode(t, w.walk(t.Context(), new(folder{path: "."})), schemas.CodeTooLarge)
}

func FuzzGlobsMatchAsDockersDo(f *testing.F) {
	for _, s := range []string{"a", "a/b", "*", "**", "**/b", "**b", "a/**", "a/**/b", "a?", "a*/b", "**/a*", "!a", "a.b", `\a`, "[ab]", "a**b", "**/a/**", "*/**/b"} {
		for _, p := range []string{"a", "a/b", "b", "ab", "a/a/b", "aab/b", "a.b", "b/a/b/c"} {
			f.Add(s, p)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		plain := func(s, more string) bool {
			return strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune("ab./"+more, r) }) < 0
		}
		if len(pattern) > 30 || !plain(pattern, "*?!") || !plain(path, "") || path == "" || filepath.Clean(path) != path ||
			strings.HasPrefix(path, "/") || strings.HasPrefix(path, ".") {
			return
		}
		docker, err := patternmatcher.New([]string{"c", pattern})
		ours, ownErr := compileRules("", []string{"c", pattern})
		if (err == nil) != (ownErr == nil) {
			t.Fatalf("%q: error %v, patternmatcher's %v", pattern, ownErr, err)
		}
		if err != nil {
			return
		}
		want, err := docker.MatchesOrParentMatches(path)
		testkit.Must(t, err)
		if got := matchRules(t.Context(), ours, path); got != want {
			t.Errorf("pattern %q, path %q: %v, patternmatcher says %v", pattern, path, got, want)
		}
	})
}
