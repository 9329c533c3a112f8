package syncer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestStoreIsApartFromFolder has the store in the folder, the folder in the store, and both in one place: each is refused, also through
// a symlink. It waited for its own lock, and stored its own objects. Sync 11.
func TestStoreIsApartFromFolder(t *testing.T) {
	for _, c := range []struct{ root, store, message string }{
		{"x", "x", "is both the folder and the store"},
		{"x", "x/deep/store", "is inside the folder"},
		{"x/deep", "x", "is inside the store"},
		{"x", "link/store", "is inside the folder"},
		{"x", "x-apart", ""},
	} {
		top := t.TempDir()
		testkit.Must(t, os.Symlink("x", filepath.Join(top, "link")))
		w := &treetest.Tree{T: t, Dir: filepath.Join(top, c.root)}
		w.Write("f", "1")
		dir := filepath.Join(top, c.store)
		testkit.Must(t, os.MkdirAll(dir, 0o755))
		store := openDir(t, dir)
		for _, op := range treetest.PushAndPull() {
			_, err := op(w.Syncer(store, func(cfg *syncer.Config) { cfg.StoreDir = dir }), t.Context())
			if c.message == "" {
				testkit.Must(t, err)
				continue
			}
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
			testkit.Contains(t, c.root+" and "+c.store, err.Error(), c.message)
		}
		closeDir(t, store)
	}
}
