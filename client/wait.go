package client

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Waiter is what [Wait] waits for: a process until it has ended, a sandbox until it runs.
type Waiter interface {
	// reached waits like the Wait of the type, and reports false when ctx ended first.
	reached(ctx context.Context) bool
}

var (
	_ Waiter = (*Process)(nil)
	_ Waiter = (*Sandbox)(nil)
)

// Wait waits for n of these processes or sandboxes, each as its own Wait does, or for all when n is 0, or until ctx ends. It returns those
// whose Wait has returned, also with an error, and those whose has not, in their order. It waits on while NATS is away.
func Wait[T Waiter](ctx context.Context, n int, all ...T) (done, pending []T) {
	if n <= 0 || n > len(all) {
		n = len(all)
	}
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	ended, left := make([]bool, len(all)), n
	var group errgroup.Group
	for i, w := range all {
		group.Go(func() error {
			if !w.reached(waits) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			ended[i] = true
			if left--; left == 0 {
				cancel()
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return none
	for i, w := range all {
		if ended[i] {
			done = append(done, w)
		} else {
			pending = append(pending, w)
		}
	}
	return done, pending
}

func (p *Process) reached(ctx context.Context) bool {
	ended, stop := p.client.caller.WatchEnd(ctx, p.ref, func() {})
	defer stop()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Sandbox) reached(ctx context.Context) bool {
	return s.Wait(ctx) == nil || ctx.Err() == nil
}
