package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
)

func notifyInterrupt(ch chan os.Signal) { signal.Notify(ch, unix.SIGINT, unix.SIGTERM) }

// How much is measured: enough rounds for a median that holds on a machine that others use too.
const (
	latencyRounds = 15
	latencyRuns   = 60 // in each round, of each
	rateRounds    = 7
	rateRuns      = 1200
	callers       = 16
	bareCallers   = 4
	warmUp        = 50
)

// bareTrue is the baseline: fork, exec, wait.
func bareTrue(ctx context.Context) error { return exec.CommandContext(ctx, "true").Run() }

func sluiceTrue(c *client.Client, thread string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := c.Exec(ctx, client.Request{Thread: thread, Command: "true"})
		if err == nil && !r.Success {
			err = fmt.Errorf("true ended with %d", r.ExitCode)
		}
		return err
	}
}

// times runs f n times, one after the other, and returns each duration in milliseconds.
func times(ctx context.Context, n int, f func(context.Context) error) ([]float64, error) {
	out := make([]float64, n)
	for i := range out {
		begin := time.Now()
		if err := f(ctx); err != nil {
			return nil, err
		}
		out[i] = float64(time.Since(begin)) / float64(time.Millisecond)
	}
	return out, nil
}

// latency is the p50 of exec `true` with its durable record, over bare fork and exec, one at a time.
func latency(at place) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		r, err := b.rig(ctx, at)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		ours := sluiceTrue(r.client, "latency")
		if _, err := times(ctx, warmUp, ours); err != nil {
			return 0, err
		}
		var ratios, bareAll, oursAll []float64
		for range latencyRounds {
			bare, err := times(ctx, latencyRuns, bareTrue)
			if err != nil {
				return 0, err
			}
			our, err := times(ctx, latencyRuns, ours)
			if err != nil {
				return 0, err
			}
			bareAll, oursAll = append(bareAll, median(bare)), append(oursAll, median(our))
			ratios = append(ratios, median(our)/median(bare))
		}
		fmt.Fprintf(os.Stderr, "  exec true: %.2f ms, bare %.2f ms (p50)\n", median(oursAll), median(bareAll))
		return median(ratios), nil
	}
}

// perSecond runs functions at the same time, n calls in all, and returns calls a second.
func perSecond(ctx context.Context, n int, fs []func(context.Context) error) (float64, error) {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	errs := make([]error, len(fs))
	begin := time.Now()
	for i, f := range fs {
		wg.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				errs[i] = f(ctx)
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(begin).Seconds(), errors.Join(errs...)
}

// rate is jobs a second at 16 at a time, each in a conversation of its own, over bare fork and exec at 4 at a time.
func rate(at place) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		r, err := b.rig(ctx, at)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		var ours, bare []func(context.Context) error
		for i := range callers {
			f := sluiceTrue(r.client, fmt.Sprintf("rate-%d", i))
			if err := f(ctx); err != nil { // makes the sandbox
				return 0, err
			}
			ours = append(ours, f)
		}
		for range bareCallers {
			bare = append(bare, bareTrue)
		}
		var ratios, ourAll, bareAll []float64
		for range rateRounds {
			b, err := perSecond(ctx, rateRuns, bare)
			if err != nil {
				return 0, err
			}
			o, err := perSecond(ctx, rateRuns, ours)
			if err != nil {
				return 0, err
			}
			ratios, ourAll, bareAll = append(ratios, o/b), append(ourAll, o), append(bareAll, b)
		}
		fmt.Fprintf(os.Stderr, "  exec true at %d: %.0f/s, bare at %d: %.0f/s\n", callers, median(ourAll), bareCallers, median(bareAll))
		return median(ratios), nil
	}
}
