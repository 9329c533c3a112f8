package processor

import (
	"context"
	"os"
	"sync"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
)

// stage is the real provider, with a look at the sandboxes it makes, and doubles where a test gives them.
type stage struct {
	real   *local.Provider
	dir    string
	create func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error)

	mu   sync.Mutex
	made []sandbox.Sandbox
}

func newStage(c *cell) *stage {
	dir, err := os.MkdirTemp("", "sl") // short: it holds unix sockets
	c.must(err)
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return stageIn(c, dir)
}

// stageIn is a stage on a folder that another may have left.
func stageIn(c *cell, dir string) *stage {
	p, err := local.New(local.Config{RunDir: dir, Warn: func(string) {}})
	c.must(err)
	s := &stage{real: p, dir: dir}
	s.create = p.Create
	c.t.Cleanup(func() { _ = p.Close() })
	return s
}

// Name is the real one's.
func (s *stage) Name() string { return s.real.Name() }

// Create keeps what is made.
func (s *stage) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	sb, err := s.create(ctx, spec)
	if err == nil {
		s.mu.Lock()
		s.made = append(s.made, sb)
		s.mu.Unlock()
	}
	return sb, err
}

// Attach is the real one's.
func (s *stage) Attach(ctx context.Context) ([]sandbox.Attached, error) { return s.real.Attach(ctx) }

// Leave is the real one's.
func (s *stage) Detach() error { return s.real.Detach() }

// Close ends the real one.
func (s *stage) Close() error { return s.real.Close() }

func (s *stage) sandboxes() []sandbox.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sandbox.Sandbox(nil), s.made...)
}
