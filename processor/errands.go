package processor

import (
	"sync"
	"time"
)

// errands are what a worker does on the side: to tell of sandboxes, to watch them. Unlike a sync.WaitGroup's, they may be
// added while somebody waits for them already.
type errands struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{}
}

// do runs f on its own; false after close, and then f does not run.
func (e *errands) do(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.n++
	go func() {
		defer e.leave()
		f()
	}()
	return true
}

func (e *errands) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n--
	if e.n == 0 && e.empty != nil {
		close(e.empty)
		e.empty = nil
	}
}

// wait waits until there are none, for so long at most.
func (e *errands) wait(bound time.Duration) {
	e.mu.Lock()
	empty := e.waiting()
	e.mu.Unlock()
	within(empty, bound)
}

// close takes no more, and waits as wait does.
func (e *errands) close(bound time.Duration) {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wait(bound)
}

// waiting is closed when there are none. mu is held.
func (e *errands) waiting() <-chan struct{} {
	if e.empty == nil {
		e.empty = make(chan struct{})
		if e.n == 0 {
			defer func() { e.empty = nil }()
			close(e.empty)
		}
	}
	return e.empty
}
