package syncer_test

import (
	"context"
	"iter"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// interposed is a store that calls functions before two of its requests.
type interposed struct {
	*storetest.Memory
	beforeList, beforeState func() // nil for none
}

func (s *interposed) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	if prefix == state.ObjectPrefix && s.beforeList != nil {
		s.beforeList()
	}
	return s.Memory.List(ctx, prefix)
}

func (s *interposed) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	if key == state.ReservedName && s.beforeState != nil {
		s.beforeState()
	}
	return s.Memory.Put(ctx, key, c, cond)
}

// TestEqualCollectionsSpareARunningPush has two collections replace the same state by the same bytes, so that each is successful. The second
// one looks for garbage when a push under the new generation has stored its content, and not its state. Sync 3.
func TestEqualCollectionsSpareARunningPush(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		store, a, b := &storetest.Memory{}, treetest.New(t), treetest.New(t)
		collect := func(store objectstore.Store) {
			_, err := a.Syncer(store, func(c *syncer.Config) { c.Retention = syncer.Retention{Keep: 1, Grace: 1} }).Collect(t.Context())
			testkit.Must(t, err)
		}
		a.Write("f", "1")
		a.Push(store, o)
		a.Write("f", "2")
		a.Push(store)
		b.Pull(store)
		b.Write("g", "3")

		stored, collected := make(chan struct{}), make(chan struct{})
		var push sync.WaitGroup
		finish := sync.OnceFunc(func() { close(collected) })
		defer push.Wait()
		defer finish()
		collect(&interposed{Memory: store, beforeList: func() {
			collect(store)
			reached := sync.OnceFunc(func() { close(stored) })
			push.Go(func() {
				defer reached()
				b.Push(&interposed{Memory: store, beforeState: func() { reached(); <-collected }})
			})
			<-stored
		}})
		finish()
		push.Wait()
		c := treetest.New(t)
		c.Pull(store)
		c.Want("f", "2")
		c.Want("g", "3")
	})
}
