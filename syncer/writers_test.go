package syncer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// TestPullGetsWholeTreeDuringPushes pulls while pushes replace everything: each pull gets the complete tree of one push.
func TestPullGetsWholeTreeDuringPushes(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		a, b, store := newTree(t), newTree(t), newStore()
		write := func(i int) {
			for k := range 20 {
				a.write(fmt.Sprintf("f%d", k), fmt.Sprint(i))
			}
		}
		write(0)
		a.push(store, o)
		over := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			defer close(over)
			for i := range rounds(15, 400) {
				write(i)
				a.push(store)
			}
		})
		for done := false; !done; {
			select {
			case <-over:
				done = true
			default:
			}
			if _, err := b.syncer(store).Pull(t.Context()); err != nil && !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("pull: %v, want success or a conflict", err)
			}
			for k := range 20 {
				if got := b.read(fmt.Sprintf("f%d", k)); got != b.read("f0") {
					t.Fatalf("f%d = %q, want %q as in f0: parts of two trees", k, got, b.read("f0"))
				}
			}
		}
		group.Wait()
		b.pull(store)
		sameTrees(t, a, b)
	})
}

// TestConcurrentPushesLoseNothing has writers push to one place, each its own file and all of them one file. What a push has
// reported as done must be stored, and exactly one writer wins the shared file in each round.
func TestConcurrentPushesLoseNothing(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		const writers = 16
		store := newStore()
		trees := make([]*tree, writers)
		for i := range trees {
			trees[i] = newTree(t)
		}
		trees[0].write("shared", "base")
		trees[0].push(store, o)
		for _, w := range trees {
			w.pull(store)
		}
		for round := range rounds(3, 50) {
			won := make([]bool, writers)
			var group sync.WaitGroup
			for i, w := range trees {
				w.write(fmt.Sprintf("own-%d", i), fmt.Sprintf("round %d of %d", round, i))
				w.write("shared", fmt.Sprintf("round %d by %d", round, i))
				group.Go(func() {
					r, err := w.syncer(store).Push(t.Context())
					switch {
					case err == nil:
						won[i] = true
					case !errors.Is(err, schemas.ErrConflict):
						t.Errorf("round %d, writer %d: %v", round, i, err)
					case len(r.Conflicts) != 1 || r.Conflicts[0].Path != "shared":
						t.Errorf("round %d, writer %d: conflicts = %+v, want the shared file (error: %v)", round, i, r.Conflicts, err)
					}
				})
			}
			group.Wait()
			winner := -1
			for i, w := range won {
				if w && winner >= 0 {
					t.Fatalf("round %d: the pushes of both %d and %d succeeded, want one", round, winner, i)
				}
				if w {
					winner = i
				}
			}
			if winner < 0 {
				t.Fatalf("round %d: no push succeeded, want one", round)
			}
			for i, w := range trees {
				if i != winner {
					w.pull(store, on(syncer.ConflictRemote))
					w.push(store)
				}
				if got, want := w.read("shared"), fmt.Sprintf("round %d by %d", round, winner); got != want {
					t.Fatalf("round %d: writer %d has %q, want %q", round, i, got, want)
				}
			}
			for _, w := range trees {
				w.pull(store)
				sameTrees(t, trees[0], w)
			}
		}
	})
}
