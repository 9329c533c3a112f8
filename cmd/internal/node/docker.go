package node

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/pool"
	"github.com/sluice-dev/sluice/schemas"
)

// keeper is a provider with work of its own: to remove what is left behind, to keep sandboxes ready.
type keeper interface {
	Run(ctx context.Context) error
}

// keep runs the keepers among the providers until ctx ends; whoever calls the result waits for them.
func (n *Node) keep(ctx context.Context, providers map[string]sandbox.Provider) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for name, p := range providers {
		if k, ok := p.(keeper); ok {
			all.Go(func() {
				if err := k.Run(ctx); err != nil && ctx.Err() == nil {
					n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("provider's upkeep ended")
				}
			})
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// pooled is a pool with the provider whose containers it keeps ready.
type pooled struct {
	*pool.Pool
	containers *docker.Provider
}

// Run does the upkeep of both.
func (p *pooled) Run(ctx context.Context) error {
	swept := make(chan error, 1)
	go func() { swept <- p.containers.Run(ctx) }()
	err := p.Pool.Run(ctx)
	if sweepErr := <-swept; err == nil {
		err = sweepErr
	}
	return err
}

// imageProvider is the one of the providers that makes sandboxes from images; empty for none.
func imageProvider(providers map[string]sandbox.Provider) string {
	if providers[Docker] == nil {
		return ""
	}
	return Docker
}

func (n *Node) newDocker() (sandbox.Provider, error) {
	if n.cfg.PoolSize > 0 && n.cfg.Image == "" {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "--pool %d: say by --image of what the containers are to be made", n.cfg.PoolSize)
	}
	warn := func(err error) { n.cfg.Log.Warn().Err(err).Str("provider", Docker).Msg("docker") }
	pulling := &pulls{say: n.cfg.Progress}
	if pulling.say == nil {
		pulling.say = func(text string) { n.cfg.Log.Info().Str("provider", Docker).Msg(text) }
	}
	containers, err := docker.New(docker.Config{
		RunDir: n.cfg.RunFolder, Image: n.cfg.Image, Worker: n.cfg.Worker, Warn: warn, OnPull: pulling.report,
	})
	if err != nil || n.cfg.PoolSize == 0 {
		return containers, err
	}
	p, err := pool.New(pool.Config{
		Provider: containers, Dir: filepath.Join(n.cfg.Workspaces, ".pool"), Warn: warn,
		// What the worker asks for where a command names no image.
		Templates: []pool.Template{{Image: n.cfg.Image, Limits: n.cfg.Limits, Size: n.cfg.PoolSize}},
	})
	if err != nil {
		return nil, err
	}
	if err := observe.Pool(n.cfg.Metrics, Docker, poolStats(p)); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "register the pool's metrics: %w", err)
	}
	return &pooled{Pool: p, containers: containers}, nil
}

// poolStats are a pool's counts as metrics take them.
func poolStats(p *pool.Pool) func() observe.PoolStats {
	return func() observe.PoolStats {
		s := p.Stats()
		return observe.PoolStats{
			Hits: s.Hits, Misses: s.Misses, Exhausted: s.Exhausted, Failed: s.Failed,
			Ready: s.Ready, Making: s.Creating, InUse: s.InUse, Size: s.Size, Wait: s.Wait,
		}
	}
}
