package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/syncer"
)

func TestPushThenPullElsewhere(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	random := rand.NewChaCha8([32]byte{1})
	for i := range 300 {
		name := filepath.Join(src, fmt.Sprint(i%7), fmt.Sprint(i))
		data := make([]byte, i*100)
		_, _ = random.Read(data)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	big := make([]byte, 20<<20)
	_, _ = random.Read(big)
	if err := os.WriteFile(filepath.Join(src, "big"), big, 0o640); err != nil {
		t.Fatal(err)
	}
	store := open(t, t.Name())
	for _, root := range []string{src, dst} {
		s, err := syncer.New(syncer.Config{Root: root, Store: store, Remote: "s3://x"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			op := s.Push
			if root == dst {
				op = s.Pull
			}
			r, err := op(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", r)
		}
	}
}
