package processor_test

import (
	"context"
	"sync"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
)

// testProvider is the local provider. It records the sandboxes that it creates; a test may replace create.
type testProvider struct {
	real   *local.Provider
	dir    string
	create func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error)

	mu   sync.Mutex
	made []sandbox.Sandbox
}

func newTestProvider(c *cell) *testProvider {
	return testProviderIn(c, testkit.ShortDir(c.t))
}

// testProviderIn uses a folder that an earlier provider may have left.
func testProviderIn(c *cell, dir string) *testProvider {
	p, err := local.New(local.Config{RunDir: dir, Warn: func(string) {}})
	c.must(err)
	s := &testProvider{real: p, dir: dir}
	s.create = p.Create
	c.t.Cleanup(func() { _ = p.Close() })
	return s
}

// Name is the real provider's.
func (s *testProvider) Name() string { return s.real.Name() }

// Create records what it creates.
func (s *testProvider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := s.create(ctx, spec)
	if err == nil {
		s.mu.Lock()
		s.made = append(s.made, sb)
		s.mu.Unlock()
	}
	return sb, err
}

// Attach is the real provider's.
func (s *testProvider) Attach(ctx context.Context) ([]sandbox.Attached, error) {
	return s.real.Attach(ctx)
}

// Detach is the real provider's.
func (s *testProvider) Detach() error { return s.real.Detach() }

// Close closes the real provider.
func (s *testProvider) Close() error { return s.real.Close() }

func (s *testProvider) sandboxes() []sandbox.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sandbox.Sandbox(nil), s.made...)
}
