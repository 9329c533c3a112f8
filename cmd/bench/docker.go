package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox/docker"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/pool"
)

const (
	dockerRounds   = 7
	dockerExecs    = 10 // by docker exec, in each round
	dockerRateRuns = 48 // by docker exec, 16 at a time
	boxRateRuns    = 1200
	poolRounds     = 5
	poolClaims     = 5
)

// containers makes containers of provider docker, has one that runs, and the engine.
type containers struct {
	boxes
	engine *dockertest.Engine
	box    *docker.Sandbox
}

// docker starts a provider with one container. Errors: missing where there is no engine.
func (b *bench) docker(ctx context.Context) (*containers, error) {
	engine, err := dockertest.Open(ctx)
	if err != nil {
		return nil, skip(err, dockertest.ErrMissing)
	}
	b.atEnd(engine.Close)
	image, err := engine.Image(ctx)
	if err != nil {
		return nil, skip(err, dockertest.ErrMissing)
	}
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	p, err := docker.New(docker.Config{
		RunDir: filepath.Join(dir, "run"), Image: image, Cell: "bench", Worker: fmt.Sprint("bench-", os.Getpid()),
		Warn: func(err error) { b.note("%v", err) },
	})
	if err != nil {
		return nil, err
	}
	b.atEnd(p.Close)
	c := &containers{boxes: boxes{provider: p, dir: dir}, engine: engine}
	s, err := c.warm(ctx)
	if err != nil {
		return nil, err
	}
	box, ok := s.(*docker.Sandbox)
	if !ok {
		return nil, fmt.Errorf("sandbox is a %T, want a container", s)
	}
	c.box = box
	return c, nil
}

// createAndStart creates and starts a container with the engine. Its removal does not count.
func (c *containers) createAndStart(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	id, err := c.engine.Start(ctx, c.box.Container())
	took := time.Since(begin)
	if id != "" {
		err = errors.Join(err, c.engine.Remove(context.WithoutCancel(ctx), id))
	}
	return took, err
}

// dockerExec runs `true` as `docker exec` does.
func (c *containers) dockerExec(ctx context.Context) error {
	return c.engine.Exec(ctx, c.box.Container(), "/bin/true")
}

// dockerExec is the time of `true` in a running container, over that of the same busybox by bare fork and exec, with output read.
func dockerExec(ctx context.Context, b *bench, c *containers) (float64, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return 0, err
	}
	return b.turns(ctx, latencyRounds,
		side{"true in a container", latencyRuns, timed(trueIn(c.box))}, side{"bare", latencyRuns, timed(bareRead(busybox, "true"))})
}

// dockerOverExec is the time of `docker exec` with the engine's API, over that of the same command with the supervisor.
func dockerOverExec(ctx context.Context, b *bench, c *containers) (float64, error) {
	return b.turns(ctx, dockerRounds,
		side{"docker exec", dockerExecs, timed(c.dockerExec)}, side{"by the supervisor", latencyRuns, timed(trueIn(c.box))})
}

// dockerRate is the commands a second with the supervisor, over those of `docker exec`, 16 at a time.
func dockerRate(ctx context.Context, b *bench, c *containers) (float64, error) {
	return b.rates(ctx, dockerRounds,
		alike("by the supervisor", boxRateRuns, callers, trueIn(c.box)), alike("docker exec", dockerRateRuns, callers, c.dockerExec))
}

// startPool starts a pool over the containers.
func (c *containers) startPool(ctx context.Context, b *bench, dir string, size int) (*pool.Pool, error) {
	p, err := pool.New(pool.Config{
		Provider: c.provider, Dir: dir, Templates: []pool.Template{{Size: size}}, Warn: func(err error) { b.note("%v", err) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	b.atEnd(func() error {
		cancel()
		err := <-ended
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return errors.Join(err, p.Close())
	})
	return p, nil
}

// poolClaim is the time to create and start a container, over that of a claim from a full pool.
func poolClaim(ctx context.Context, b *bench, c *containers) (float64, error) {
	p, err := c.startPool(ctx, b, filepath.Join(c.dir, "pool"), 1)
	if err != nil {
		return 0, err
	}
	claimed := boxes{provider: p, dir: c.dir, made: poolNames}
	claim := claimed.create(nothing)
	filled := func(ctx context.Context) (time.Duration, error) {
		if err := p.WaitFilled(ctx); err != nil {
			return 0, err
		}
		return claim(ctx)
	}
	ratio, err := b.turns(ctx, poolRounds, side{"docker create and start", dockerColds, c.createAndStart}, side{"claim", poolClaims, filled})
	if s := p.Stats(); err == nil && s.Misses > 0 {
		err = fmt.Errorf("%d claims missed the pool, want none", s.Misses)
	}
	return ratio, err
}

// poolNames is the first number of the claimed sandboxes: their names must differ from those of the provider.
const poolNames = 1000
