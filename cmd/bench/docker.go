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

// docker starts a provider with one container. closeAll ends both. Errors: missing where there is no engine.
func (b *bench) docker(ctx context.Context) (_ *containers, closeAll func() error, err error) {
	engine, err := dockertest.Open(ctx)
	if err != nil {
		return nil, nil, skip(err, dockertest.ErrMissing)
	}
	closeAll = engine.Close
	defer func() {
		if err != nil {
			err = errors.Join(skip(err, dockertest.ErrMissing), closeAll())
		}
	}()
	image, err := engine.Image(ctx)
	if err != nil {
		return nil, nil, err
	}
	dir, err := b.folder()
	if err != nil {
		return nil, nil, err
	}
	p, err := docker.New(docker.Config{
		RunDir: filepath.Join(dir, "run"), Image: image, Cell: "bench", Worker: fmt.Sprint("bench-", os.Getpid()),
		Warn: func(err error) { b.note("%v", err) },
	})
	if err != nil {
		return nil, nil, err
	}
	closeAll = func() error { return errors.Join(p.Close(), engine.Close()) }
	c := &containers{boxes: boxes{provider: p, dir: dir}, engine: engine}
	s, err := c.warm(ctx)
	if err != nil {
		return nil, nil, err
	}
	box, ok := s.(*docker.Sandbox)
	if !ok {
		return nil, nil, fmt.Errorf("sandbox is a %T, want a container", s)
	}
	c.box = box
	return c, closeAll, nil
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

// withDocker runs a measurement that needs containers.
func withDocker(measure func(context.Context, *bench, *containers) (float64, error)) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		c, closeAll, err := b.docker(ctx)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		return measure(ctx, b, c)
	}
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

// poolClaim is the time to create and start a container, over that of a claim from a full pool.
func poolClaim(ctx context.Context, b *bench, c *containers) (_ float64, err error) {
	p, err := pool.New(pool.Config{
		Provider: c.provider, Dir: filepath.Join(c.dir, "pool"), Templates: []pool.Template{{Size: 1}},
		Warn: func(err error) { b.note("%v", err) },
	})
	if err != nil {
		return 0, err
	}
	runCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(runCtx) }()
	defer func() {
		cancel()
		if runErr := <-ended; !errors.Is(runErr, context.Canceled) {
			err = errors.Join(err, runErr)
		}
		err = errors.Join(err, p.Close())
	}()
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
