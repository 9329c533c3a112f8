package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// attempt runs one hook once, and records its start and end.
func (c *Chains) attempt(ctx context.Context, l *link, call *Call, number int) error {
	r := schemas.HookRun{Hook: l.name, Phase: call.Phase, Occasion: call.Occasion, Critical: l.critical, Attempt: number}
	c.record(ctx, schemas.TypeHookStarted, call, r)
	start := time.Now()
	err := c.runBounded(ctx, l, call)
	r.DurationMS = float64(time.Since(start)) / float64(time.Millisecond)
	if err == nil {
		c.record(ctx, schemas.TypeHookFinished, call, r)
		return nil
	}
	r.Error = schemas.AsError(err)
	c.record(ctx, schemas.TypeHookFailed, call, r)
	c.cfg.Log.Warn().Err(err).Str("hook", l.name).Str("phase", string(call.Phase)).Str("thread", call.Conversation.Thread).
		Str("occasion", call.Occasion).Int("attempt", number).Msg("hook_failed")
	return err
}

// runBounded runs a hook with its timeout. A hook that ignores its context cannot be stopped: runBounded returns without it, and
// Close waits for it.
func (c *Chains) runBounded(ctx context.Context, l *link, call *Call) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	ended := make(chan error, 1)
	c.running.Go(func() { c.runRecovered(ctx, l, call, ended) })
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace := time.NewTimer(stragglerGrace)
		defer grace.Stop()
		select {
		case err = <-ended:
		case <-grace.C:
			return schemas.Errorf(schemas.CodeDeadlineExceeded, "it still runs after its timeout of %s: it must observe its context", l.timeout)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "its timeout of %s was reached: %w", l.timeout, err)
	}
	return err
}

// runRecovered runs a hook and sends its error on ended, also when the hook panics or exits its goroutine.
func (c *Chains) runRecovered(ctx context.Context, l *link, call *Call, ended chan<- error) {
	var err error = schemas.Errorf(schemas.CodeInternal, "it exited its goroutine instead of returning")
	defer func() {
		if p := recover(); p != nil {
			err = schemas.Errorf(schemas.CodeInternal, "it panicked: %s", clip(fmt.Sprint(p)))
			c.cfg.Log.Error().Str("hook", l.name).Bytes("stack", debug.Stack()).Msg("hook_panicked")
		}
		ended <- err
	}()
	err = l.run(ctx, call)
}

// record records an event of this worker, also when ctx has ended.
func (c *Chains) record(ctx context.Context, typ schemas.EventType, call *Call, data any) {
	body, err := json.Marshal(data)
	if err != nil {
		body, _ = json.Marshal(schemas.Errorf(schemas.CodeInternal, "encode %s: %v", typ, err)) // strings always encode
	}
	ev := &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: ulid.Make().String(), Source: c.cfg.Worker, Type: typ, Subject: call.Conversation.Thread,
		Time: time.Now().UTC(), Tenant: call.Conversation.Tenant, Thread: call.Conversation.Thread, Session: call.Conversation.Session,
		Template: call.Conversation.Template, Origin: call.Origin, Data: body,
	}
	if call.Phase == schemas.PhaseMessage || call.Phase == schemas.PhaseStreamFinish {
		ev.Process, ev.Subject = call.Occasion, call.Occasion
	}
	c.cfg.Record(context.WithoutCancel(ctx), ev)
}

// maxErrorText is the number of bytes of foreign text that an error repeats: it must fit into an event.
const maxErrorText = 300

func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return s[:maxErrorText] + "…"
}
