package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
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
func latency(at place) measurement {
	return with(rigAt(at), func(ctx context.Context, b *bench, r *rig) (float64, error) {
		ours := side{"exec true", latencyRuns, timed(sluiceTrue(r.client, "latency"))}
		if _, err := (side{"warm up", warmUp, ours.op}).p50(ctx); err != nil {
			return 0, err
		}
		return b.turns(ctx, latencyRounds, ours, side{"bare", latencyRuns, timed(bareTrue)})
	})
}

// rate is the commands a second, 16 at a time and each in its own thread, over those of bare fork and exec, 4 at a time.
func rate(at place) measurement {
	return with(rigAt(at), func(ctx context.Context, b *bench, r *rig) (float64, error) {
		ours := crowd{name: "exec true", n: rateRuns}
		for i := range callers {
			f := sluiceTrue(r.client, fmt.Sprintf("rate-%d", i))
			if err := f(ctx); err != nil { // starts the sandbox
				return 0, err
			}
			ours.each = append(ours.each, f)
		}
		return b.rates(ctx, rateRounds, ours, alike("bare", rateRuns, bareCallers, bareTrue))
	})
}

// hookRounds is more than latencyRounds: the overhead is a tenth of the measured time.
const hookRounds = 25

type idleHook struct{}

// OnMessage does nothing.
func (idleHook) OnMessage(context.Context, *hooks.Call) error { return nil }

// OnStreamFinish does nothing.
func (idleHook) OnStreamFinish(context.Context, *hooks.Call) error { return nil }

// hookOverhead is the p50 of exec `true` with two idle hooks before it and two after it, each with two durable events, over that of
// exec `true` without hooks.
func hookOverhead(at place) measurement {
	return with(rigAt(at), func(ctx context.Context, b *bench, r *rig) (_ float64, err error) {
		recorder := r.worker.Worker().NewEventBuffer(func(_ *schemas.Event, failed error) { err = errors.Join(err, failed) })
		recordCtx, endRecords := context.WithCancel(ctx)
		recorded := make(chan struct{})
		go func() {
			defer close(recorded)
			_ = recorder.Run(recordCtx) // it ends with its context only
		}()
		defer func() {
			endRecords()
			<-recorded
		}()
		chains, err := hooks.New(hooks.Config{Worker: "bench", Record: recorder.Record, Hooks: map[string]any{"idle": idleHook{}}})
		if err != nil {
			return 0, err
		}
		bare := sluiceTrue(r.client, "hooks")
		hooked := withHooks(chains, bare)
		with := side{"exec true with 4 hooks", latencyRuns, timed(hooked)}
		if _, err := (side{"warm up", warmUp, with.op}).p50(ctx); err != nil {
			return 0, err
		}
		return b.turns(ctx, hookRounds, with, side{"exec true", latencyRuns, timed(bare)})
	})
}

// withHooks runs the hooks of a message around a function, with a new occasion for each call.
func withHooks(chains *hooks.Chains, f func(context.Context) error) func(context.Context) error {
	two := []schemas.HookSpec{{Builtin: "idle"}, {Builtin: "idle"}}
	template := &schemas.Template{Name: "bench", Hooks: map[schemas.Phase][]schemas.HookSpec{schemas.PhaseMessage: two, schemas.PhaseStreamFinish: two}}
	occasion := 0
	return func(ctx context.Context) error {
		occasion++
		data := schemas.HookData{Occasion: fmt.Sprintf("p%d", occasion), Conversation: schemas.Conversation{Tenant: schemas.DefaultTenant, Thread: "hooks", Session: "s"}}
		data.Phase = schemas.PhaseMessage
		if _, err := chains.Run(ctx, template, data, "", nil); err != nil {
			return err
		}
		if err := f(ctx); err != nil {
			return err
		}
		data.Phase = schemas.PhaseStreamFinish
		_, err := chains.Run(ctx, template, data, "", nil)
		return err
	}
}
