package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

// hookRounds is more than latencyRounds: the overhead is a tenth of the measured time.
const hookRounds = 25

// idleHook does nothing.
type idleHook struct{}

// OnMessage does nothing.
func (idleHook) OnMessage(context.Context, *hooks.Call) error { return nil }

// OnStreamFinish does nothing.
func (idleHook) OnStreamFinish(context.Context, *hooks.Call) error { return nil }

// hookOverhead is the p50 of exec `true` with two idle hooks before it and two after it, each with two durable events, over that of
// exec `true` without hooks.
func hookOverhead(at place) func(context.Context, *bench) (float64, error) {
	return func(ctx context.Context, b *bench) (_ float64, err error) {
		r, err := b.rig(ctx, at)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
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
	}
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
