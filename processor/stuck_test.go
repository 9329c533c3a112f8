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

// stubbornSandbox is a real sandbox whose worker cannot end it.
type stubbornSandbox struct{ sandbox.Attached }

// Terminate returns ctx's error, as providers do.
func (stubbornSandbox) Terminate(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

// Hardening 2: a session that is terminating stays so in its entry, and a worker that restarts meanwhile goes on to end it.
func TestTerminatingSessionEndsAfterARestart(t *testing.T) {
	t.Parallel()
	c, dead := newRig(t, func(cfg *processor.Config) { hasty(cfg); cfg.Timeouts().SandboxEnd = 50 * time.Millisecond })
	create := dead.provider.create
	dead.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		sb, err := create(ctx, spec)
		if err != nil {
			return nil, err
		}
		return stubbornSandbox{sb.(sandbox.Attached)}, nil
	}
	c.exec(command("k", sh(":")))
	was := c.session()
	grace := int64(0)
	if _, err := c.stop(schemas.StopRequest{GraceMS: &grace}); !errors.Is(err, schemas.ErrUnavailable) {
		t.Errorf("stop of a sandbox that does not end: %v, want unavailable", err)
	}
	c.awaitEvent(schemas.TypeSandboxEnding)
	wantFields(t, c.session(), schemas.Session{ID: was.ID, State: schemas.SandboxRunning, Terminating: true})
	dead.crash()

	dead.again()
	ended := c.awaitEvent(schemas.TypeSessionTerminated)
	var last schemas.Session
	c.must(ended.Decode(&last))
	wantFields(t, &last, schemas.Session{ID: was.ID, State: schemas.SandboxTerminated, Sandbox: was.Sandbox})
	equal(t, "terminating, in the last state", last.Terminating, false)
	c.wantNoSession("t")
}
