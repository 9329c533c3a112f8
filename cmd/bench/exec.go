package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/sluice-dev/sluice/client"
)

// How much is measured: enough rounds for a stable median on a machine with other load.
const (
	latencyRounds = 15
	latencyRuns   = 60 // in each round, of each
	rateRounds    = 7
	rateRuns      = 1200
	callers       = 16
	bareCallers   = 4
	warmUp        = 50
)

// bareTrue is the baseline of exec: fork, exec, wait.
func bareTrue(ctx context.Context) error { return exec.CommandContext(ctx, "true").Run() }

// bareRead is the baseline of commands with output: fork and exec with a pipe for each stream, read to the end.
func bareRead(program string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdout, cmd.Stderr = onlyWriter{io.Discard}, onlyWriter{io.Discard}
		return cmd.Run()
	}
}

func sluiceTrue(c *client.Client, thread string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := c.Exec(ctx, client.Request{Thread: thread, Command: "true"})
		if err == nil && !r.Success {
			err = fmt.Errorf("true: exit code %d, want 0", r.ExitCode)
		}
		return err
	}
}

// latency is the p50 of exec `true` with its durable record, over that of bare fork and exec, one at a time.
func latency(at place) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		r, err := b.rig(ctx, at)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		ours := side{"exec true", latencyRuns, timed(sluiceTrue(r.client, "latency"))}
		if _, err := (side{"warm up", warmUp, ours.op}).p50(ctx); err != nil {
			return 0, err
		}
		return b.turns(ctx, latencyRounds, ours, side{"bare", latencyRuns, timed(bareTrue)})
	}
}

// rate is the commands a second, 16 at a time and each in its own thread, over those of bare fork and exec, 4 at a time.
func rate(at place) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		r, err := b.rig(ctx, at)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		ours := crowd{name: "exec true", n: rateRuns}
		for i := range callers {
			f := sluiceTrue(r.client, fmt.Sprintf("rate-%d", i))
			if err := f(ctx); err != nil { // starts the sandbox
				return 0, err
			}
			ours.each = append(ours.each, f)
		}
		return b.rates(ctx, rateRounds, ours, alike("bare", rateRuns, bareCallers, bareTrue))
	}
}
