package dirstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func open(t *testing.T, dir string) *dirstore.Store {
	t.Helper()
	s, err := dirstore.Open(dir)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, s.Close()) })
	return s
}

func TestStoreConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store { return open(t, t.TempDir()) })
}

func TestHostileKeysStayInside(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "store")
	s := open(t, dir)
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	for _, key := range []string{"", "/abs", "../up", "a/../../up", "a//b", "./a", "a/.", "nul\x00", "link/escaped"} {
		_, err := s.Put(t.Context(), key, objectstore.Content{}, objectstore.Condition{})
		if err == nil {
			t.Errorf("Put accepted the key %q", key)
		}
		if _, _, err := s.Get(t.Context(), key, objectstore.Range{}, nil); err == nil {
			t.Errorf("Get accepted the key %q", key)
		}
		if err := s.Delete(t.Context(), key); err == nil && key != "link/escaped" {
			t.Errorf("Delete accepted the key %q", key)
		}
	}
	entries, err := os.ReadDir(outside)
	testkit.Must(t, err)
	if len(entries) != 1 {
		t.Errorf("entries = %v, want the store's folder alone", entries)
	}
}

func TestOpenRefusesFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	_, err := dirstore.Open(file)
	testkit.WantCode(t, err, schemas.CodeNotFound)
}

// TestEmptyFoldersDoNotBlockKeys has the folders that a process leaves when it is killed between the folder and its object.
func TestEmptyFoldersDoNotBlockKeys(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	content := objectstore.Bytes([]byte("x"))
	left := func() {
		t.Helper()
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
	}
	left()
	testkit.Must(t, s.Delete(t.Context(), "a/b/c/d/gone"))
	if _, err := os.Lstat(filepath.Join(dir, "a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a Delete of a missing key: %v, want its folders removed", err)
	}
	for _, cond := range []objectstore.Condition{{}, {Absent: true}} {
		left()
		if _, err := s.Put(t.Context(), "a", content, cond); err != nil {
			t.Errorf("Put in place of empty folders: %v", err)
		}
		testkit.Must(t, s.Delete(t.Context(), "a"))
	}
	left()
	_, err := s.Put(t.Context(), "a/b/kept", content, objectstore.Condition{})
	testkit.Must(t, err)
	if _, err := s.Put(t.Context(), "a", content, objectstore.Condition{}); err == nil {
		t.Error("Put replaced a folder of keys, want an error")
	}
	_, err = s.Stat(t.Context(), "a/b/kept")
	testkit.Must(t, err)
}

// A pipe in the folder, which would be waited for, is no object, nor are its temporary files waited for.
func TestPipeIsNoObject(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	testkit.Must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	_, _, err := s.Get(t.Context(), "pipe", objectstore.Range{}, nil)
	testkit.WantCode(t, err, schemas.CodeNotFound)
	temporary := filepath.Join(dir, ".dirstore")
	testkit.Must(t, os.MkdirAll(temporary, 0o755))
	testkit.Must(t, unix.Mkfifo(filepath.Join(temporary, "pipe"), 0o600))
	open(t, dir)
	if _, err := os.Lstat(filepath.Join(temporary, "pipe")); !os.IsNotExist(err) {
		t.Errorf("stat of a pipe among the temporary files: %v, want it removed", err)
	}
}
