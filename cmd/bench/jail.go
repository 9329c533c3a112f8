package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/jail"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	coldRounds  = 5
	coldRuns    = 20 // jails in each round
	dockerColds = 3  // containers in each round
	bwrapRounds = 15
	bwrapRuns   = 20

	outputRounds = 9
)

// jails starts a provider of jails. closeAll ends it with its jails. Errors: missing where this machine cannot run them.
func (b *bench) jails() (_ *boxes, closeAll func() error, err error) {
	dir, err := b.folder()
	if err != nil {
		return nil, nil, err
	}
	p, err := jail.New(jail.Config{RunDir: filepath.Join(dir, "run"), Warn: func(text string) { b.note("%s", text) }})
	if errors.Is(err, schemas.ErrUnavailable) {
		return nil, nil, missing(err)
	}
	if err != nil {
		return nil, nil, err
	}
	return &boxes{provider: p, dir: dir}, p.Close, nil
}

// jailCold is the time to create and start a container with the hardening of provider docker, over the time from the request for a
// jail to the end of its first command.
func jailCold(ctx context.Context, b *bench) (_ float64, err error) {
	j, closeJails, err := b.jails()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeJails()) }()
	d, closeDocker, err := b.docker(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeDocker()) }()
	return b.turns(ctx, coldRounds, side{"docker create and start", dockerColds, d.createAndStart}, side{"jail to its first true", coldRuns, j.create(firstTrue)})
}

// jailBwrap is the time of `true` in bubblewrap, without limits and system call filter, over the time from the request for a jail to
// the end of its first `true`.
func jailBwrap(ctx context.Context, b *bench) (_ float64, err error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return 0, missing(errors.New("bubblewrap is missing: apt-get install bubblewrap"))
	}
	j, closeJails, err := b.jails()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeJails()) }()
	workspace, err := b.folder()
	if err != nil {
		return 0, err
	}
	args := []string{"--unshare-all", "--ro-bind", "/usr", "/usr"}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			args = append(args, "--symlink", target, "/"+name)
		} else {
			args = append(args, "--ro-bind-try", "/"+name, "/"+name)
		}
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", workspace, "/workspace", "true")
	wrapped := func(ctx context.Context) error {
		if out, err := exec.CommandContext(ctx, bwrap, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	return b.turns(ctx, bwrapRounds, side{"bwrap true", bwrapRuns, timed(wrapped)}, side{"jail to its first true", bwrapRuns, j.create(firstTrue)})
}

// jailExec is the time of `true` in a running jail, over that by bare fork and exec with output read.
func jailExec(ctx context.Context, b *bench) (_ float64, err error) {
	j, closeJails, err := b.jails()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeJails()) }()
	s, err := j.warm(ctx)
	if err != nil {
		return 0, err
	}
	return b.turns(ctx, latencyRounds, side{"true in a jail", latencyRuns, timed(trueIn(s))}, side{"bare", latencyRuns, timed(bareRead("true"))})
}

// jailOutput is the MB/s of dd in a jail, read and acked as it comes, over those of a bare pipe.
func jailOutput(ctx context.Context, b *bench) (_ float64, err error) {
	j, closeJails, err := b.jails()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeJails()) }()
	s, err := j.warm(ctx)
	if err != nil {
		return 0, err
	}
	var ratios, ours, bares []float64
	for i := range outputRounds {
		bare, err := barePipe(ctx)
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		n, err := run(ctx, s, sandbox.Command{ID: fmt.Sprint("dd", i), Path: "dd", Args: ddArgs()})
		if err == nil && n != logBytes {
			err = fmt.Errorf("got %d bytes of output, want %d", n, logBytes)
		}
		if err != nil {
			return 0, err
		}
		our := megabytes(n, begin)
		ratios, ours, bares = append(ratios, our/bare), append(ours, our), append(bares, bare)
	}
	b.note("out of a jail %.0f MB/s, bare pipe %.0f MB/s", median(ours), median(bares))
	return median(ratios), nil
}
