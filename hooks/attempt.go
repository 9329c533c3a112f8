package hooks

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// attempt runs one hook once, and records it.
func (c *Chains) attempt(ctx context.Context, l *link, call *Call, number int) error {
	told := schemas.HookRun{Hook: l.name, Phase: call.Phase, Occasion: call.Occasion, Critical: l.critical, Attempt: number}
	c.record(ctx, schemas.TypeHookStarted, call, told)
	begun := time.Now()
	err := c.bounded(ctx, l, call)
	told.DurationMS = float64(time.Since(begun)) / float64(time.Millisecond)
	if err == nil {
		c.record(ctx, schemas.TypeHookFinished, call, told)
		return nil
	}
	told.Error = schemas.AsError(err)
	c.record(ctx, schemas.TypeHookFailed, call, told)
	c.cfg.Log.Warn().Err(err).Str("hook", l.name).Str("phase", string(call.Phase)).Str("thread", call.Conversation.Thread).
		Str("occasion", call.Occasion).Int("attempt", number).Msg("hook_failed")
	return err
}

// bounded runs a hook within its deadline. One that goes on all the same is left behind: nobody can stop it, but a message
// need not wait for it. Close does.
func (c *Chains) bounded(ctx context.Context, l *link, call *Call) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	ended := make(chan error, 1)
	c.running.Go(func() { c.safely(ctx, l, call, ended) })
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace := time.NewTimer(stragglerGrace)
		defer grace.Stop()
		select {
		case err = <-ended:
		case <-grace.C:
			return schemas.Errorf(schemas.CodeDeadlineExceeded, "it went on after its timeout of %s and was left behind: it must heed its context", l.timeout)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "it ran into its timeout of %s: %w", l.timeout, err)
	}
	return err
}

// safely sends how a hook ended, whether it returns, panics or ends its goroutine.
func (c *Chains) safely(ctx context.Context, l *link, call *Call, ended chan<- error) {
	var returned error = schemas.Errorf(schemas.CodeInternal, "it ended its goroutine instead of returning")
	defer func() {
		if p := recover(); p != nil {
			returned = schemas.Errorf(schemas.CodeInternal, "it panicked: %s", clip(fmt.Sprint(p)))
			c.cfg.Log.Error().Str("hook", l.name).Bytes("stack", debug.Stack()).Msg("hook_panicked")
		}
		ended <- returned
	}()
	returned = l.run(ctx, call)
}

// maxErrorText is how much of a foreign text an error repeats, in bytes.
const maxErrorText = 300

// clip keeps a foreign text from filling an event.
func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	return s[:maxErrorText] + "…"
}
