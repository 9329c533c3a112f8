package pool

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Stats are a Pool's counts since it was made, and what it holds now.
type Stats struct {
	// Hits are the sandboxes that were ready, Misses those made when they were asked for.
	Hits, Misses int64
	// Exhausted counts the requests refused with pool_exhausted; Failed the members that could not be made.
	Exhausted, Failed int64
	// Ready members are kept, Making are on their way, InUse belong to sessions.
	Ready, Making, InUse int
	// Size is how many are to be kept ready, over all templates.
	Size int
	// Wait is the time that hits and misses took, all together; MaxWait the longest of them.
	Wait, MaxWait time.Duration
}

// HitRate is the share of requests that found a sandbox ready, from 0 to 1; 0 before the first.
func (s Stats) HitRate() float64 {
	if s.Hits+s.Misses == 0 {
		return 0
	}
	return float64(s.Hits) / float64(s.Hits+s.Misses)
}

// Stats tells the counts of this moment.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetEnded()
	s := p.stats
	s.InUse = len(p.used)
	for _, shelf := range p.shelves {
		s.Ready += len(shelf.ready)
		s.Making += shelf.making
		s.Size += shelf.size
	}
	return s
}

// Filled returns once as many sandboxes are ready as are to be kept, or as many as Config.Max lets be. The error is ctx's, or
// unavailable when the Pool is closed.
func (p *Pool) Filled(ctx context.Context) error {
	for {
		p.mu.Lock()
		full, closed, changed := p.full(), p.closed, p.changed
		p.mu.Unlock()
		switch {
		case closed:
			return schemas.Errorf(schemas.CodeUnavailable, "the pool is closed")
		case full:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// full says whether there is nothing more to make. mu is held.
func (p *Pool) full() bool {
	room := p.config.Max == 0 || p.count() < p.config.Max
	for _, s := range p.shelves {
		if s.making > 0 || room && len(s.ready) < s.size {
			return false
		}
	}
	return true
}
