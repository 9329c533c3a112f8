package node

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/pool"
	"github.com/sluice-dev/sluice/schemas"
)

// maintainer is a provider with background work: it removes what crashed workers left behind, or keeps sandboxes ready.
type maintainer interface {
	Run(ctx context.Context) error
}

// maintain runs the background work of the providers until ctx ends. wait ends it and waits for it.
func (n *Node) maintain(ctx context.Context, providers map[string]sandbox.Provider) (wait func()) {
	return background(ctx, func(ctx context.Context) {
		var all sync.WaitGroup
		for name, p := range providers {
			if m, ok := p.(maintainer); ok {
				all.Go(func() {
					if err := m.Run(ctx); err != nil && ctx.Err() == nil {
						n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("provider maintenance stopped")
					}
				})
			}
		}
		all.Wait()
	})
}

// pooled is a pool and the provider whose containers it keeps ready.
type pooled struct {
	*pool.Pool
	containers *docker.Provider
}

// Run maintains both.
func (p *pooled) Run(ctx context.Context) error {
	swept := make(chan error, 1)
	go func() { swept <- p.containers.Run(ctx) }()
	err := p.Pool.Run(ctx)
	if sweepErr := <-swept; err == nil {
		err = sweepErr
	}
	return err
}

func (n *Node) newDocker() (sandbox.Provider, error) {
	const name = schemas.ProviderDocker
	warn := func(err error) { n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("docker") }
	pulls := &pullReporter{report: n.cfg.Progress}
	if pulls.report == nil {
		pulls.report = func(text string) { n.cfg.Log.Info().Str("provider", name).Msg(text) }
	}
	containers, err := docker.New(docker.Config{
		RunDir: n.cfg.RunFolder, Image: n.cfg.Image, Runtime: n.cfg.Runtime, Worker: n.cfg.Worker, Warn: warn, OnPull: pulls.update,
	})
	if err != nil || n.cfg.PoolSize == 0 || n.cfg.Image == "" {
		return provided(containers, err)
	}
	p, err := pool.New(pool.Config{
		Provider: containers, Dir: filepath.Join(n.cfg.Workspaces, ".pool"), Warn: warn,
		// The worker asks for this template when a command names no image.
		Templates: []pool.Template{{Image: n.cfg.Image, Network: n.cfg.Network, Limits: n.cfg.Limits, Size: n.cfg.PoolSize}},
	})
	if err != nil {
		return nil, err
	}
	if n.pool.Swap(p) == nil {
		if err := observe.Pool(n.cfg.Metrics, name, n.poolStats); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "register the pool's metrics: %w", err)
		}
	}
	return &pooled{Pool: p, containers: containers}, nil
}

// poolStats converts the pool's counts for the metrics.
func (n *Node) poolStats() observe.PoolStats {
	s := n.pool.Load().Stats()
	return observe.PoolStats{
		Hits: s.Hits, Misses: s.Misses, Exhausted: s.Exhausted, Failed: s.Failed,
		Ready: s.Ready, Making: s.Creating, InUse: s.InUse, Size: s.Size, Wait: s.Wait,
	}
}

// pullReportEvery is the shortest time between two reports of a pull.
const pullReportEvery = 3 * time.Second

// pullReporter sums up the engine's many progress messages of a pull in a line of text.
type pullReporter struct {
	report func(text string)

	mu       sync.Mutex
	image    string
	layers   map[string]docker.Progress
	reported time.Time
}

func (r *pullReporter) update(p docker.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Image != r.image {
		r.image, r.layers, r.reported = p.Image, make(map[string]docker.Progress), time.Now()
		r.report("image " + p.Image + " is missing on this machine: pulling it")
	}
	if p.Layer == "" {
		return
	}
	if before, ok := r.layers[p.Layer]; ok && p.Total == 0 {
		p.Current, p.Total = before.Total, before.Total // a later state of a layer that is downloaded
	}
	r.layers[p.Layer] = p
	if time.Since(r.reported) < pullReportEvery {
		return
	}
	r.reported = time.Now()
	done, current, total := 0, int64(0), int64(0)
	for _, l := range r.layers {
		if l.Status == "Pull complete" || l.Status == "Already exists" {
			done++
		}
		current, total = current+l.Current, total+l.Total
	}
	r.report(fmt.Sprintf("pulling image %s: %d of %d layers, %.1f of %.1f MB", r.image, done, len(r.layers), float64(current)/1e6, float64(total)/1e6))
}
