package treetest

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
)

// Chaos is the environment variable that asks for the long form of the chaos tests.
const Chaos = "SLUICE_CHAOS"

// Rounds returns the number of rounds of a chaos test: short, or long in the long form.
func Rounds(short, long int) int {
	if os.Getenv(Chaos) != "" {
		return long
	}
	return short
}

// ConcurrentPushes has 16 writers push to store at once, each its own file and all of them one file. What a push has
// reported as done must be stored, and exactly one writer wins the shared file in each round.
func ConcurrentPushes(t *testing.T, store objectstore.Store, o Option) {
	const writers = 16
	trees := make([]*Tree, writers)
	for i := range trees {
		trees[i] = New(t)
	}
	trees[0].Write("shared", "base")
	trees[0].Push(store, o)
	for _, w := range trees {
		w.Pull(store)
	}
	for round := range Rounds(3, 50) {
		won := make([]bool, writers)
		var group sync.WaitGroup
		for i, w := range trees {
			w.Write(fmt.Sprint("own-", i), fmt.Sprintf("round %d of %d", round, i))
			w.Write("shared", fmt.Sprintf("round %d by %d", round, i))
			group.Go(func() {
				r, err := w.Syncer(store).Push(t.Context())
				switch {
				case err == nil:
					won[i] = true
				case schemas.CodeOf(err) != schemas.CodeConflict:
					t.Errorf("round %d, writer %d: code = %q, want conflict (error: %v)", round, i, schemas.CodeOf(err), err)
				case len(r.Conflicts) != 1 || r.Conflicts[0].Path != "shared":
					t.Errorf("round %d, writer %d: conflicts = %+v, want the shared file (error: %v)", round, i, r.Conflicts, err)
				}
			})
		}
		group.Wait()
		winner := slices.Index(won, true)
		if winner < 0 || slices.Contains(won[winner+1:], true) {
			t.Fatalf("round %d: successful pushes = %v, want one", round, won)
		}
		for i, w := range trees { // the others take the winner's shared file, all at once
			if i == winner {
				continue
			}
			group.Go(func() {
				if _, err := w.Syncer(store, OnConflict(plan.ConflictRemote)).Pull(t.Context()); err != nil {
					t.Errorf("round %d, pull of writer %d: %v", round, i, err)
				}
				if _, err := w.Syncer(store).Push(t.Context()); err != nil {
					t.Errorf("round %d, push of writer %d: %v", round, i, err)
				}
			})
		}
		group.Wait()
		for _, w := range trees {
			w.Pull(store)
			w.Want("shared", fmt.Sprintf("round %d by %d", round, winner))
			for k := range trees {
				w.Want(fmt.Sprint("own-", k), fmt.Sprintf("round %d of %d", round, k))
			}
			Same(t, trees[0], w)
		}
	}
}
