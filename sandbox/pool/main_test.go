package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

func newLocal(t *testing.T) sandbox.Provider { return localIn(t, testkit.ShortDir(t)) }

func localIn(t *testing.T, dir string) sandbox.Provider {
	t.Helper()
	p, err := local.New(local.Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	testkit.Must(t, err)
	return p
}

func dockerIn(t *testing.T, dir string) sandbox.Provider {
	t.Helper()
	p, err := docker.New(docker.Config{
		RunDir: filepath.Join(dir, "run"), Image: dockertest.Image(t), Cell: fmt.Sprint("test-pool-", os.Getpid()), // another run of these tests sweeps its own
		Worker: strings.NewReplacer("/", ".", "#", ".").Replace(t.Name()),
		Warn: func(err error) {
			if strings.Contains(err.Error(), "could not be taken over") { // the pool before, in this process too, ends its unclaimed members
				t.Log(err)
			} else {
				t.Error(err)
			}
		},
	})
	testkit.Must(t, err)
	return p
}

// providers are the inner providers under test.
var providers = map[string]func(t *testing.T, dir string) sandbox.Provider{"Local": localIn, "Docker": dockerIn}

// start runs a pool until the test ends, and waits until it is filled.
func start(tb testing.TB, config Config) *Pool {
	tb.Helper()
	if config.Dir == "" {
		config.Dir = filepath.Join(testkit.ShortDir(tb), "pool")
	}
	p, err := New(config)
	testkit.Must(tb, err)
	run(tb, p)
	testkit.Must(tb, p.WaitFilled(testkit.Context(tb)))
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
			tb.Errorf("Run: %v, want context.Canceled", err)
		}
		if err := p.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
		wantEmpty(tb, p.config.Dir)
	})
}

func wantEmpty(tb testing.TB, dir string) {
	tb.Helper()
	files, err := os.ReadDir(dir)
	testkit.Must(tb, err)
	if len(files) != 0 {
		tb.Errorf("files in %s: %v, want none", dir, files)
	}
}

// The suite runs on claimed sandboxes. For containers, which are slow, it runs by default the parts that a claim could break: the
// working directory of a command, and the lifecycle of the sandbox. SLUICE_LONG=1 runs everything.
func TestConformance(t *testing.T) {
	for name, inner := range providers {
		t.Run(name, func(t *testing.T) {
			inner(t, testkit.ShortDir(t))
			var parts []string
			if name == "Docker" && os.Getenv("SLUICE_LONG") == "" {
				parts = []string{"Start", "Sandbox", "Attach"}
			}
			sandboxtest.Run(t, sandboxtest.Factory{Parts: parts, New: func(t *testing.T, dir string) sandbox.Provider {
				members := filepath.Join(dir, "pool")
				_, err := os.Stat(members)
				return &firstClaimed{t: t, checked: err == nil, Pool: start(t, Config{
					Provider: inner(t, dir), Dir: members, Templates: []Template{{Size: 1}}, Parallel: 1, Warn: func(err error) { t.Error(err) },
				})}
			}})
		})
	}
}

// firstClaimed fails the test when the first sandbox was not claimed from the pool.
type firstClaimed struct {
	*Pool
	t       *testing.T
	checked bool // also after a restart on the same folder
}

func (c *firstClaimed) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s, err := c.Pool.Create(ctx, spec)
	if !c.checked {
		c.checked = true
		if stats := c.Stats(); stats.Hits != 1 || stats.Misses != 0 {
			c.t.Errorf("hits %d, misses %d, want 1 and 0", stats.Hits, stats.Misses)
		}
	}
	return s, err
}
