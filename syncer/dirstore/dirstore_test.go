package dirstore_test

import (
	"errors"
	"os"
	"path/filepath"
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
