package events

import "sync"

// gate lets a bounded number of goroutines in, and can be closed: then it waits for those inside.
type gate struct {
	mu     sync.Mutex
	max    int
	inside int
	closed bool
	empty  sync.WaitGroup
}

func newGate(limit int) *gate { return &gate{max: limit} }

// enter says whether there is room; whoever is let in calls leave.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.inside == g.max {
		return false
	}
	g.inside++
	g.empty.Add(1)
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	g.inside--
	g.mu.Unlock()
	g.empty.Done()
}

// close lets nobody in any more and returns when all have left.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.empty.Wait()
}
