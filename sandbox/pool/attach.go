package pool

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/sluice-dev/sluice/sandbox"
)

// Attach takes over the sandboxes of sessions that an earlier process left; see sandbox.Reattacher. Those that nobody had
// claimed are ended: Run makes others.
func (p *Pool) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	inner, ok := p.config.Provider.(sandbox.Reattacher)
	if !ok {
		return nil, nil
	}
	found, err := inner.Attach(ctx)
	if err != nil {
		return nil, err
	}
	var unclaimed sync.WaitGroup
	defer unclaimed.Wait()
	claimed := found[:0]
	for _, s := range found {
		if dir := s.Spec().Workspace; filepath.Dir(dir) == p.config.Dir {
			unclaimed.Go(func() { p.discard(&member{Sandbox: s, dir: dir}) })
			continue
		}
		claimed = append(claimed, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range claimed {
		p.used[s.ID()] = s
	}
	p.change()
	return claimed, nil
}

// Leave gives every sandbox up without ending it; see sandbox.Reattacher.
func (p *Pool) Leave() error {
	inner, ok := p.config.Provider.(sandbox.Reattacher)
	if !ok {
		return p.Close()
	}
	p.shut()
	return inner.Leave()
}

// shut lets nobody in any more, and empties the shelves.
func (p *Pool) shut() (rest []*member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.shelves {
		for m := s.take(); m != nil; m = s.take() {
			rest = append(rest, m)
		}
	}
	p.change()
	return rest
}
