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

func newLocal(tb testing.TB) sandbox.Provider { return localIn(tb, shortDir(tb)) }

func localIn(tb testing.TB, dir string) sandbox.Provider {
	tb.Helper()
	p, err := local.New(local.Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func newDocker(tb testing.TB) sandbox.Provider { return dockerIn(tb, shortDir(tb)) }

func dockerIn(tb testing.TB, dir string) sandbox.Provider {
	tb.Helper()
	p, err := docker.New(docker.Config{
		RunDir: filepath.Join(dir, "run"), Image: dockertest.Image(tb), Cell: "test-pool",
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

// TestConformance runs the suite on sandboxes that were all claimed. With containers, which take their time, it is by default what
// being claimed could break: where a command runs, and what becomes of the sandbox. SLUICE_LONG makes it everything.
func TestConformance(t *testing.T) {
	for name, inner := range map[string]func(testing.TB, string) sandbox.Provider{"Local": localIn, "Docker": dockerIn} {
		t.Run(name, func(t *testing.T) {
			inner(t, shortDir(t))
			var parts []string
			if name == "Docker" && os.Getenv("SLUICE_LONG") == "" {
				parts = []string{"Start", "Sandbox", "Attach"}
			}
			sandboxtest.Run(t, sandboxtest.Factory{
				Parts: parts,
				New: func(t *testing.T) sandbox.Provider {
					dir := shortDir(t)
					return &counted{Pool: start(t, pooling(t, inner(t, dir))), t: t, next: func() Config { return pooling(t, inner(t, dir)) }}
				},
				Next: func(t *testing.T, left sandbox.Provider) sandbox.Provider {
					l, ok := left.(*counted)
					if !ok {
						t.Fatalf("%T", left)
					}
					config := l.next()
					config.Dir = l.config.Dir
					return &counted{Pool: start(t, config), t: t, next: l.next, seen: true}
				},
			})
		})
	}
}

func pooling(t *testing.T, inner sandbox.Provider) Config {
	return Config{Provider: inner, Templates: []Template{{Size: 1}}, Parallel: 1, Warn: func(err error) { t.Error(err) }}
}

// counted fails the test when the first sandbox was not a claimed one.
type counted struct {
	*Pool
	t    *testing.T
	seen bool
	next func() Config // the same again, over a provider on the same folder
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
