package e2e

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
	"github.com/sluice-dev/sluice/syncer/e2e/gateway"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestEncryptedStore runs the conformance suite, and syncs, over encryption. Sync 14.
func TestEncryptedStore(t *testing.T) {
	key, err := cryptstore.ParseKey(cryptstore.NewKey())
	testkit.Must(t, err)
	onServers(t, func(t *testing.T, s *gateway.Server, options []treetest.Option) {
		storetest.Run(t, func(t *testing.T) objectstore.Store { return cryptstore.New(openAt(t, s, t.Name()), key) }, lacks(s.Kind)...)
		t.Run("Sync", func(t *testing.T) {
			a, b, store := treetest.New(t), treetest.New(t), objectstore.Retry(openAt(t, s, t.Name()), objectstore.RetryPolicy{})
			options := append(options, func(c *syncer.Config) { c.Key = key })
			random := rand.New(rand.NewPCG(7, 8))
			treetest.Fill(a)
			for range 3 {
				treetest.Stir(a, random)
				a.Push(store, options...)
				b.Pull(store, options...)
				treetest.Same(t, a, b)
			}
			c, err := a.Syncer(store, options...).Check(t.Context(), false)
			testkit.Must(t, err)
			testkit.Equal(t, "damage", len(c.Damage), 0)
		})
	})
}
