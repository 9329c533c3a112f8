package syncer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
)

func TestPushThenPullElsewhere(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	store, err := dirstore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for name, data := range map[string]string{"a": "A", "d/b": "B", "d/e/c": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, name), []byte(data), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(src, "big"), make([]byte, 20<<20), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{src, dst} {
		s, err := syncer.New(syncer.Config{Root: root, Store: store, Remote: "file:///x"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if root == src {
				r, err := s.Push(t.Context())
				t.Logf("%+v %v", r, err)
				if err != nil {
					t.Fatal(err)
				}
			} else {
				r, err := s.Pull(t.Context())
				t.Logf("%+v %v", r, err)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
