package run

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/sandbox"
)

const (
	// maxMeasures is how many sandboxes are asked at a time, and measureTimeout how long one may take: one whose supervisor is stopped does
	// not answer.
	maxMeasures    = 16
	measureTimeout = time.Second
)

// measure asks the sandboxes of these runs what their processes use. A process of one that does not answer has no usage.
func measure(ctx context.Context, runs []*Run) map[string]sandbox.Usage {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	meters := make(map[sandbox.Meter]bool)
	for _, run := range runs {
		run.mu.Lock()
		if m, ok := run.sandbox.(sandbox.Meter); ok {
			meters[m] = true
		}
		run.mu.Unlock()
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxMeasures)
	all := make(map[string]sandbox.Usage)
	for m := range meters {
		group.Go(func() error {
			usages, err := m.Usage(ctx)
			if err != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(all, usages)
			return nil
		})
	}
	_ = group.Wait() // its functions return none
	return all
}
