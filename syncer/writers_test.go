package syncer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// TestManyWriters has writers push to one place at once, each a file of its own and all of them one file. Whatever a
// push has reported as done must be there, and of the shared file exactly one writer wins each round.
// TestPullWhileOthersPush pulls again and again while pushes replace everything: each pull gets one push's tree whole.
func TestPullWhileOthersPush(t *testing.T) {
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
				t.Errorf("%v", err)
			}
			for k := range 20 {
				if got := b.read(fmt.Sprintf("f%d", k)); got != b.read("f0") {
					t.Fatalf("half of one tree and half of another: %q and %q", b.read("f0"), got)
				}
			}
		}
		group.Wait()
		b.pull(store)
		sameTrees(t, a, b)
	})
}

func TestManyWriters(t *testing.T) {
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
						t.Errorf("round %d, writer %d: %v, but the report has %+v", round, i, err, r.Conflicts)
					}
				})
			}
			group.Wait()
			winner := -1
			for i, w := range won {
				if w && winner >= 0 {
					t.Fatalf("round %d: both %d and %d were told that they have won", round, winner, i)
				}
				if w {
					winner = i
				}
			}
			if winner < 0 {
				t.Fatalf("round %d: nobody has won", round)
			}
			for i, w := range trees {
				if i != winner {
					w.pull(store, on(syncer.ConflictRemote))
					w.push(store)
				}
				if got, want := w.read("shared"), fmt.Sprintf("round %d by %d", round, winner); got != want {
					t.Fatalf("round %d: writer %d has %q, not %q", round, i, got, want)
				}
			}
			for _, w := range trees {
				w.pull(store)
				sameTrees(t, trees[0], w)
			}
		}
	})
}
