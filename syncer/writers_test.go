package syncer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestPullGetsWholeTreeDuringPushes pulls while pushes replace everything: each pull gets the complete tree of one push.
func TestPullGetsWholeTreeDuringPushes(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		write := func(i int) {
			for k := range 20 {
				a.Write(fmt.Sprintf("f%d", k), fmt.Sprint(i))
			}
		}
		write(0)
		a.Push(store, o)
		over := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			defer close(over)
			for i := range treetest.Rounds(15, 400) {
				write(i)
				a.Push(store)
			}
		})
		for done := false; !done; {
			select {
			case <-over:
				done = true
			default:
			}
			if _, err := b.Syncer(store).Pull(t.Context()); err != nil && !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("pull: %v, want success or a conflict", err)
			}
			for k := range 20 {
				if got := b.Read(fmt.Sprintf("f%d", k)); got != b.Read("f0") {
					t.Fatalf("f%d = %q, want %q as in f0: parts of two trees", k, got, b.Read("f0"))
				}
			}
		}
		group.Wait()
		b.Pull(store)
		treetest.Same(t, a, b)
	})
}

func TestConcurrentPushesLoseNothing(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) { treetest.ConcurrentPushes(t, &storetest.Memory{}, o) })
}
