package userids

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestEveryIDHasOneUser(t *testing.T) {
	t.Parallel()
	b, other := newBlock(0), newBlock(1)
	seen := make(map[int]bool)
	for range blockSize {
		id, err := b.Allocate(0)
		testkit.Must(t, err)
		if seen[id] {
			t.Fatalf("id %d was given twice", id)
		}
		seen[id] = true
	}
	_, err := b.Allocate(0)
	testkit.WantCode(t, err, schemas.CodeLimitExceeded)
	foreign, err := other.Allocate(b.first)
	testkit.Must(t, err)
	testkit.Equal(t, "an id of another run folder", seen[foreign], false)
	testkit.Equal(t, "the largest id is a positive number of 32 bits", base+blocks*blockSize <= 1<<31-1, true)
}

func TestPreferredIDIsGivenWhenItIsFree(t *testing.T) {
	t.Parallel()
	b := newBlock(2)
	last := b.first + blockSize - 1
	for _, step := range []struct {
		do        func()
		preferred int
		want      int
	}{
		{func() {}, last, last},
		{func() {}, last, b.first},
		{func() { b.Release(last) }, last, last},
		{func() { b.Reserve(b.first + 1) }, 0, b.first + 2},
	} {
		step.do()
		id, err := b.Allocate(step.preferred)
		testkit.Must(t, err)
		testkit.Equal(t, "id", id, step.want)
	}
}
