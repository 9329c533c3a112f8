package work

import (
	"context"
	"sync"
	"time"
)

// Background runs functions beside the calls that start them. Unlike with a sync.WaitGroup, functions may start while a caller
// waits.
type Background struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed when nothing runs; nil when no caller waits
}

// NewBackground starts nothing.
func NewBackground() *Background {
	b := &Background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Context is for work that outlives the call that started it, and the first signal of a shutdown. Cancel ends it.
func (b *Background) Context() context.Context { return b.ctx }

// Cancel ends Context.
func (b *Background) Cancel() { b.cancel() }

// Go runs f in a goroutine. It reports false after Close, and then f does not run.
func (b *Background) Go(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running++
	go func() {
		defer b.leave()
		f()
	}()
	return true
}

func (b *Background) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	if b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// Wait waits until nothing runs, at most for bound.
func (b *Background) Wait(bound time.Duration) {
	b.mu.Lock()
	if b.running == 0 {
		b.mu.Unlock()
		return
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	Within(idle, bound)
}

// Close accepts no more functions, and waits as Wait does.
func (b *Background) Close(bound time.Duration) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.Wait(bound)
}

// Within waits until done is closed, at most for bound.
func Within(done <-chan struct{}, bound time.Duration) {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// Millis is a duration in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
