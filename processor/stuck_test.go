package processor_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// stuckSandbox is a double that does not end before free is closed.
type stuckSandbox struct {
	*double
	free chan struct{}
}

// Terminate returns ctx's error until then, as providers do.
func (s *stuckSandbox) Terminate(ctx context.Context, grace time.Duration) error {
	select {
	case <-s.free:
		return s.double.Terminate(ctx, grace)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Hardening 2: a session is not terminated while its sandbox has not ended: that is an event, the stop is an error, and the worker goes
// on until it has ended.
func TestSessionStaysUntilItsSandboxHasEnded(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, func(cfg *processor.Config) { cfg.Timeouts().SandboxEnd = 50 * time.Millisecond })
	stuck := &stuckSandbox{free: make(chan struct{}), double: newDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
		return newDoubleProcess(cmd.ID, d), nil
	})}
	w.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) { return stuck, nil }
	c.start(command("k", sh(":")))
	grace := int64(0)
	for range 2 { // a repeated stop gets the same answer, later
		if _, err := c.stop(schemas.StopRequest{GraceMS: &grace}); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("stop of a sandbox that does not end: %v, want unavailable", err)
		}
	}
	c.awaitEvent(schemas.TypeSandboxEnding)
	equal(t, "state of the sandbox", c.session().State, schemas.SandboxRunning)
	close(stuck.free)
	c.awaitEvent(schemas.TypeSessionTerminated)
	life := wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated)
	c.wantEvents("t", slices.Insert(life, len(life)-2, schemas.TypeSandboxEnding)...)
	c.wantNoSession("t")
}
