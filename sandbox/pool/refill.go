package pool

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Run keeps the Pool filled. It returns ctx's error when ctx ends, and nil when the Pool is closed. Members that are ready stay
// ready.
func (p *Pool) Run(ctx context.Context) error {
	var adds sync.WaitGroup
	defer adds.Wait()
	for {
		keys, next, closed := p.plan(time.Now())
		if closed {
			return nil
		}
		for _, k := range keys {
			adds.Go(func() { p.add(ctx, k) })
		}
		if err := p.waitForChange(ctx, next); err != nil {
			return err
		}
	}
}

// waitForChange waits until the Pool has changed, or until next unless that is zero.
func (p *Pool) waitForChange(ctx context.Context, next time.Time) error {
	var retry <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-p.wake:
	case <-retry:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// plan returns the templates of the members to create now, and the time of the next retry after a failure.
func (p *Pool) plan(now time.Time) (keys []templateKey, next time.Time, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, next, true
	}
	p.removeEnded()
	creating, total := 0, p.count()
	for _, q := range p.queues {
		creating += q.creating
	}
	for grown := true; grown; {
		grown = false
		// One of each template in turn, so that a large one does not starve the others.
		for k, q := range p.queues {
			switch {
			case len(q.ready)+q.creating >= q.size:
			case creating >= p.config.Parallel || p.config.Max > 0 && total >= p.config.Max:
				return keys, next, false
			case now.Before(q.retryAt):
				if next.IsZero() || q.retryAt.Before(next) {
					next = q.retryAt
				}
			default:
				keys, grown = append(keys, k), true
				q.creating++
				creating++
				total++
			}
		}
	}
	return keys, next, false
}

// add creates a member, and watches it until it is taken.
func (p *Pool) add(ctx context.Context, k templateKey) {
	m, err := p.createMember(ctx, k)
	p.mu.Lock()
	q := p.queues[k]
	q.creating--
	closed := p.closed
	switch {
	case err != nil:
		if ctx.Err() == nil && !closed {
			p.stats.Failed++
			q.retryAt = time.Now().Add(q.backoff)
			q.backoff = min(2*q.backoff, maxRetry*p.config.Retry)
		}
	case !closed:
		q.backoff = p.config.Retry
		q.ready = append(q.ready, m)
	}
	p.notify()
	p.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil && !closed:
		p.config.Warn(fmt.Errorf("pool: create a sandbox: %w", err))
	case err == nil && closed:
		p.discard(m)
	case err == nil:
		p.watch(ctx, q, m)
	}
}

// createMember creates a sandbox with an empty workspace, and checks that it is ready.
func (p *Pool) createMember(ctx context.Context, k templateKey) (*member, error) {
	id := "pool-" + rand.Text()
	m := &member{dir: filepath.Join(p.config.Dir, id), taken: make(chan struct{})}
	var err error
	m.Sandbox, err = p.config.Provider.Create(ctx, sandbox.Spec{ID: id, Workspace: m.dir, Image: k.image, Network: k.network, Limits: k.limits})
	if err != nil {
		return nil, err
	}
	if _, ok := m.Sandbox.(Rebinder); !ok {
		err = schemas.Errorf(schemas.CodeInvalidArgument, "provider %s cannot be pooled: its sandboxes cannot be rebound", p.Name())
	} else {
		err = p.config.Ready(ctx, m.Sandbox)
	}
	if err != nil {
		p.discard(m)
		return nil, err
	}
	return m, nil
}

// watch removes a member that ends before it is taken. Run then creates another one.
func (p *Pool) watch(ctx context.Context, q *queue, m *member) {
	select {
	case <-m.taken:
		return
	case <-ctx.Done():
		return
	case <-m.Done():
	}
	p.mu.Lock()
	i := slices.Index(q.ready, m)
	if i >= 0 {
		q.ready = slices.Delete(q.ready, i, i+1)
	}
	p.notify()
	p.mu.Unlock()
	if i >= 0 {
		p.discard(m)
	}
}

// Stats are a Pool's counters since New, and its current content.
type Stats struct {
	// Hits counts the sandboxes that were ready when they were requested, Misses those that were created then.
	Hits, Misses int64
	// Exhausted counts the requests refused with pool_exhausted, Failed the members that could not be created.
	Exhausted, Failed int64
	// Ready is the number of members that wait for a session, Creating of those being created, InUse of sandboxes with a session.
	Ready, Creating, InUse int
	// Size is the number of members to keep ready, over all templates.
	Size int
	// Wait is the total time of all hits and misses, MaxWait the longest one.
	Wait, MaxWait time.Duration
}

// HitRate is the share of requests that were hits, from 0 to 1; 0 before the first request.
func (s Stats) HitRate() float64 {
	if s.Hits+s.Misses == 0 {
		return 0
	}
	return float64(s.Hits) / float64(s.Hits+s.Misses)
}

// Stats returns the current Stats.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeEnded()
	s := p.stats
	s.InUse = len(p.inUse)
	for _, q := range p.queues {
		s.Ready += len(q.ready)
		s.Creating += q.creating
		s.Size += q.size
	}
	return s
}

// WaitFilled returns once the templates' number of members is ready, or as many as Config.Max permits. Errors: ctx's; unavailable
// when the Pool is closed.
func (p *Pool) WaitFilled(ctx context.Context) error {
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

// full reports whether no member is being created or has to be. mu is held.
func (p *Pool) full() bool {
	room := p.config.Max == 0 || p.count() < p.config.Max
	for _, q := range p.queues {
		if q.creating > 0 || room && len(q.ready) < q.size {
			return false
		}
	}
	return true
}
