package syncer_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestPushReplacesEmptyState cuts the state to nothing, which is what a torn write leaves: a push without changes replaces it. Sync 4.
func TestPushReplacesEmptyState(t *testing.T) {
	for name, key := range map[string]string{"plain": "", "encrypted": cryptstore.NewKey()} {
		t.Run(name, func(t *testing.T) {
			a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			a.Write("f", "1")
			a.Push(store, encrypted(key))
			treetest.PutState(t, store, nil)
			_, err := b.Syncer(store, encrypted(key)).Pull(t.Context())
			testkit.WantCode(t, err, schemas.CodeDamaged)
			a.Push(store, encrypted(key))
			b.Pull(store, encrypted(key))
			treetest.Same(t, a, b)
		})
	}
}
