package pool

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for anything before it calls it a hang.
const patience = time.Minute

// shortDir is a folder with a short path: that of a unix socket is bounded, and the name of a test is not.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

func newLocal(tb testing.TB) sandbox.Provider {
	tb.Helper()
	p, err := local.New(local.Config{RunDir: filepath.Join(shortDir(tb), "run"), Warn: func(string) {}})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func newDocker(tb testing.TB) sandbox.Provider {
	tb.Helper()
	p, err := docker.New(docker.Config{
		RunDir: filepath.Join(shortDir(tb), "run"), Image: dockertest.Image(tb), Cell: "test-pool",
		Worker: strings.NewReplacer("/", ".", "#", ".").Replace(tb.Name()),
		Warn:   func(err error) { tb.Error(err) },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// start makes a pool, runs it until the test ends, and waits until it is filled.
func start(tb testing.TB, config Config) *Pool {
	tb.Helper()
	if config.Dir == "" {
		config.Dir = filepath.Join(shortDir(tb), "pool")
	}
	p, err := New(config)
	if err != nil {
		tb.Fatal(err)
	}
	run(tb, p)
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := p.Filled(ctx); err != nil {
		tb.Fatal(err)
	}
	return p
}

func run(tb testing.TB, p *Pool) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			tb.Error(err)
		}
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
		if left, err := os.ReadDir(p.config.Dir); err != nil || len(left) != 0 {
			tb.Errorf("left in the pool's folder: %v, %v", left, err)
		}
	})
}

// TestConformance runs the suite on sandboxes that were all claimed.
func TestConformance(t *testing.T) {
	for name, inner := range map[string]func(testing.TB) sandbox.Provider{"Local": newLocal, "Docker": newDocker} {
		t.Run(name, func(t *testing.T) {
			inner(t)
			sandboxtest.Run(t, sandboxtest.Factory{New: func(t *testing.T) sandbox.Provider {
				p := start(t, Config{Provider: inner(t), Templates: []Template{{Size: 1}}, Parallel: 1, Warn: func(err error) { t.Error(err) }})
				return &counted{Pool: p, t: t}
			}})
		})
	}
}

// counted fails the test when the first sandbox was not a claimed one.
type counted struct {
	*Pool
	t    *testing.T
	seen bool
}

func (c *counted) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := c.Pool.Create(ctx, spec)
	if !c.seen {
		c.seen = true
		if stats := c.Stats(); stats.Hits != 1 || stats.Misses != 0 {
			c.t.Errorf("%+v", stats)
		}
	}
	return s, err
}
