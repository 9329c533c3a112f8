package parallel

import (
	"context"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Run calls work on at most workers goroutines, and passes each index below n to one of them. It returns the first error,
// after which no further index is passed and ctx is canceled.
func Run(ctx context.Context, workers, n int, work func(ctx context.Context, indexes iter.Seq[int]) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	indexes := func(yield func(int) bool) {
		for ctx.Err() == nil {
			if i := int(next.Add(1)) - 1; i >= n || !yield(i) {
				return
			}
		}
	}
	for range min(workers, n) {
		group.Go(func() error {
			if err := work(ctx, indexes); err != nil || int(next.Load()) >= n {
				return err
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
