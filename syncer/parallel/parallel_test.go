package parallel_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/parallel"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func TestRunPassesEachIndexOnce(t *testing.T) {
	var passed [100]atomic.Int32
	testkit.Must(t, parallel.Run(t.Context(), 7, len(passed), func(_ context.Context, indexes iter.Seq[int]) error {
		for i := range indexes {
			passed[i].Add(1)
		}
		return nil
	}))
	for i := range passed {
		testkit.Equal(t, "times that an index was passed", passed[i].Load(), int32(1))
	}
}

func TestRunStopsAtError(t *testing.T) {
	failed := errors.New("failed")
	var passed atomic.Int32
	err := parallel.Run(t.Context(), 1, 100, func(_ context.Context, indexes iter.Seq[int]) error {
		for i := range indexes {
			if passed.Add(1); i == 3 {
				return failed
			}
		}
		return nil
	})
	testkit.Equal(t, "error is the item's", errors.Is(err, failed), true)
	testkit.Equal(t, "items", passed.Load(), int32(4))
}

func TestRunReportsCanceledContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := parallel.Run(ctx, 2, 100, func(_ context.Context, indexes iter.Seq[int]) error {
		for range indexes {
			cancel()
		}
		return nil
	})
	testkit.Equal(t, "error is context.Canceled", errors.Is(err, context.Canceled), true)
}
