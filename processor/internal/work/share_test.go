package work_test

import (
	"math"
	"testing"

	"github.com/sluice-dev/sluice/processor/internal/work"
)

// A bound that no machine reaches leaves room.
func TestShareOfManyPlaces(t *testing.T) {
	for _, free := range []int{8, 1_000_000, math.MaxInt / 7, math.MaxInt - 1, math.MaxInt} {
		if got := work.Share(free, 0, 0); got < 7 || got > free {
			t.Errorf("Share(%d, 0, 0) = %d, want at least 7 and at most what is free", free, got)
		}
	}
}
