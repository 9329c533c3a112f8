package processor_test

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
)

// testProvider is the local provider. It records the sandboxes that it creates; a test may replace create.
type testProvider struct {
	*local.Provider
	dir    string
	create func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error)

	mu   sync.Mutex
	made []sandbox.Sandbox
}

// newTestProvider returns a provider in a folder that an earlier one may have left.
func newTestProvider(c *cell, dir string) *testProvider {
	p, err := local.New(local.Config{RunDir: dir, Warn: func(string) {}})
	c.must(err)
	s := &testProvider{Provider: p, dir: dir, create: p.Create}
	c.t.Cleanup(func() { _ = p.Close() })
	return s
}

// hold makes the creation of sandboxes wait until release is closed. began gets a value for each one that waits.
func (s *testProvider) hold() (began <-chan struct{}, release chan<- struct{}) {
	create, begin, goOn := s.create, make(chan struct{}, 16), make(chan struct{})
	s.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		begin <- struct{}{}
		<-goOn
		return create(ctx, spec)
	}
	return begin, goOn
}

func (s *testProvider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := s.create(ctx, spec)
	if err == nil {
		s.mu.Lock()
		s.made = append(s.made, sb)
		s.mu.Unlock()
	}
	return sb, err
}

func (s *testProvider) sandboxes() []sandbox.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.made)
}
