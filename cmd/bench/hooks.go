package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

// hookRounds is more than for a plain latency: what is looked for is a tenth of what is measured.
const hookRounds = 25

// nothing is a hook that does nothing.
type nothing struct{}

// OnMessage does nothing.
func (nothing) OnMessage(context.Context, *hooks.Call) error { return nil }

// OnStreamFinish does nothing.
func (nothing) OnStreamFinish(context.Context, *hooks.Call) error { return nil }

// hookOverhead is the p50 of exec `true` with two hooks that do nothing before it and two after it, each with its two durable events,
// over that of the exec alone.
func hookOverhead(at place) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		r, err := b.rig(ctx, at)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		recorder := r.worker.NewRecorder(func(_ *schemas.Event, failed error) { err = errors.Join(err, failed) })
		recordCtx, endRecords := context.WithCancel(ctx)
		recorded := make(chan struct{})
		go func() {
			defer close(recorded)
			_ = recorder.Run(recordCtx) // it ends with its context alone
		}()
		defer func() {
			endRecords()
			<-recorded
		}()
		chains, err := hooks.New(hooks.Config{Worker: "bench", Record: recorder.Record, Hooks: map[string]any{"nothing": nothing{}}})
		if err != nil {
			return 0, err
		}
		bare := sluiceTrue(r.client, "hooks")
		hooked := withHooks(chains, bare)
		if _, err := times(ctx, warmUp, hooked); err != nil {
			return 0, err
		}
		var ratios, bareAll, hookedAll []float64
		for range hookRounds {
			without, err := times(ctx, latencyRuns, bare)
			if err != nil {
				return 0, err
			}
			with, err := times(ctx, latencyRuns, hooked)
			if err != nil {
				return 0, err
			}
			bareAll, hookedAll = append(bareAll, median(without)), append(hookedAll, median(with))
			ratios = append(ratios, median(with)/median(without))
		}
		fmt.Fprintf(os.Stderr, "  exec true with 4 hooks: %.2f ms, without %.2f ms (p50)\n", median(hookedAll), median(bareAll))
		return median(ratios), nil
	}
}

// withHooks runs the hooks of a message around a function, on a new occasion each time.
func withHooks(chains *hooks.Chains, f func(context.Context) error) func(context.Context) error {
	two := []schemas.HookSpec{{Builtin: "nothing"}, {Builtin: "nothing"}}
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
