package pool

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Run keeps the Pool filled until ctx ends, which is then its error, or the Pool is closed, which is none. What is ready stays
// ready afterwards.
func (p *Pool) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		kinds, next, closed := p.plan(time.Now())
		if closed {
			return nil
		}
		for _, k := range kinds {
			all.Go(func() { p.add(ctx, k) })
		}
		if err := p.rest(ctx, next); err != nil {
			return err
		}
	}
}

// rest waits until there is something to look at.
func (p *Pool) rest(ctx context.Context, next time.Time) error {
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

// plan says which members to make now, and when to look again where a failure has to be waited out.
func (p *Pool) plan(now time.Time) (kinds []kind, next time.Time, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, next, true
	}
	p.forgetEnded()
	making, total := 0, p.count()
	for _, s := range p.shelves {
		making += s.making
	}
	for grown := true; grown; {
		grown = false
		// One of each in turn, so that a large one does not starve the others.
		for k, s := range p.shelves {
			switch {
			case len(s.ready)+s.making >= s.size:
			case making >= p.config.Parallel || p.config.Max > 0 && total >= p.config.Max:
				return kinds, next, false
			case now.Before(s.again):
				if next.IsZero() || s.again.Before(next) {
					next = s.again
				}
			default:
				kinds, grown = append(kinds, k), true
				s.making++
				making++
				total++
			}
		}
	}
	return kinds, next, false
}

// add makes a member, and watches it until it is taken.
func (p *Pool) add(ctx context.Context, k kind) {
	m, err := p.prepare(ctx, k)
	p.mu.Lock()
	s := p.shelves[k]
	s.making--
	closed := p.closed
	switch {
	case err != nil:
		if ctx.Err() == nil && !closed {
			p.stats.Failed++
			s.again = time.Now().Add(s.wait)
			s.wait = min(2*s.wait, maxRetry*p.config.Retry)
		}
	case !closed:
		s.wait = p.config.Retry
		s.ready = append(s.ready, m)
	}
	p.change()
	p.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil && !closed:
		p.config.Warn(fmt.Errorf("make a sandbox for the pool: %w", err))
	case err == nil && closed:
		p.discard(m)
	case err == nil:
		p.watch(ctx, s, m)
	}
}

// prepare makes a sandbox with an empty workspace, and asks whether it is ready.
func (p *Pool) prepare(ctx context.Context, k kind) (*member, error) {
	id := newID()
	m := &member{dir: filepath.Join(p.config.Dir, id), taken: make(chan struct{})}
	var err error
	m.Sandbox, err = p.config.Provider.Create(ctx, sandbox.Spec{ID: id, Workspace: m.dir, Image: k.image, Limits: k.limits})
	if err != nil {
		return nil, err
	}
	if _, ok := m.Sandbox.(Rebinder); !ok {
		err = schemas.Errorf(schemas.CodeInvalidArgument, "provider %s cannot be pooled", p.Name())
	} else {
		err = p.config.Ready(ctx, m.Sandbox)
	}
	if err != nil {
		p.discard(m)
		return nil, err
	}
	return m, nil
}

// newID names a member.
func newID() string {
	var b [8]byte
	// It never fails, as its documentation says.
	_, _ = rand.Read(b[:])
	return "pool-" + hex.EncodeToString(b[:])
}

// watch replaces a member that ends before it is taken.
func (p *Pool) watch(ctx context.Context, s *shelf, m *member) {
	select {
	case <-m.taken:
		return
	case <-ctx.Done():
		return
	case <-m.Done():
	}
	p.mu.Lock()
	mine := false
	for i, other := range s.ready {
		if other == m {
			s.ready = append(s.ready[:i], s.ready[i+1:]...)
			mine = true
			break
		}
	}
	p.change()
	p.mu.Unlock()
	if mine {
		p.discard(m)
	}
}
