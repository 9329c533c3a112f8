package dirstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *dirstore.Store {
	t.Helper()
	s, err := dirstore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) syncer.Store { return open(t, t.TempDir()) })
}

func TestHostileKeysStayInside(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "store")
	s := open(t, dir)
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"", "/abs", "../up", "a/../../up", "a//b", "./a", "a/.", "nul\x00", "link/escaped"} {
		_, err := s.Put(t.Context(), key, syncer.Content{}, syncer.Condition{})
		if err == nil {
			t.Errorf("%q was taken", key)
		}
		if _, _, err := s.Get(t.Context(), key, syncer.Range{}, nil); err == nil {
			t.Errorf("%q was read", key)
		}
		if err := s.Delete(t.Context(), key); err == nil && key != "link/escaped" {
			t.Errorf("%q was deleted", key)
		}
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

func TestOpenWhereNothingCanBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dirstore.Open(file); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a file is no folder: %v", err)
	}
}

// TestFoldersThatWereLeftBehind is about what a process leaves that is killed between making or removing a folder and
// what it did that for.
func TestFoldersThatWereLeftBehind(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	content := syncer.Content{Reader: strings.NewReader("x"), Size: 1}
	left := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	left()
	if err := s.Delete(t.Context(), "a/b/c/d/gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("deleting what is gone leaves its folders: %v", err)
	}
	for _, cond := range []syncer.Condition{{}, {Absent: true}} {
		left()
		if _, err := s.Put(t.Context(), "a", content, cond); err != nil {
			t.Errorf("a key in place of empty folders: %v", err)
		}
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	left()
	if _, err := s.Put(t.Context(), "a/b/kept", content, syncer.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "a", content, syncer.Condition{}); err == nil {
		t.Error("a key took the place of keys below it")
	}
	if _, err := s.Stat(t.Context(), "a/b/kept"); err != nil {
		t.Error(err)
	}
}
