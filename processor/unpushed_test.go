package processor_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// syncing is a template whose workspaces are pushed.
var syncing = &schemas.Template{Name: "default", Sync: &schemas.TemplateSync{Location: "file:///nowhere/{thread}"}}

func hooked(h *hooks) func(*processor.Config) {
	return func(c *processor.Config) { c.Hooks = h }
}

// TestFailedTerminateHooksAreReported ends sessions with a hook that fails, critical and not. Ten minutes 5.
func TestFailedTerminateHooksAreReported(t *testing.T) {
	h := &hooks{do: failIn(schemas.PhaseTerminate, "check", schemas.Errorf(schemas.CodePolicyDenied, "infected"))}
	c, _ := newRig(t, hooked(h), with(syncing))
	c.exec(command("k1", sh(":")))
	s, err := c.stop(schemas.StopRequest{Delete: true})
	testkit.WantCode(t, err, schemas.CodeInternal)
	testkit.Contains(t, "error", err.Error(), "infected")
	testkit.Equal(t, "failed hooks", s.FailedHooks, []string{"check"})
	c.wantNoSession("t")

	c.must(errorOf(os.Stat(s.Workspace)))
	h.set(failIn(schemas.PhaseTerminate, "notify", nil))
	c.exec(command("k2", sh(":")))
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	last, err := c.conn.LastEnded(c.ctx, schemas.DefaultTenant, "t")
	c.must(err)
	testkit.Equal(t, "failed hooks in the event", last.FailedHooks, []string{"notify"})
}

// TestNothingIsDeletedBeforeItIsPushed ends a session whose push is owed. Ten minutes 5.
func TestNothingIsDeletedBeforeItIsPushed(t *testing.T) {
	h := &hooks{owed: &schemas.OwedPush{Worker: "w1", Error: schemas.Errorf(schemas.CodeUnavailable, "the store is down")}}
	c, _ := newRig(t, hooked(h), with(syncing))
	c.exec(command("k1", sh("echo one >file")))
	_, err := c.stop(schemas.StopRequest{Snapshot: true})
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	dir := c.session().Workspace

	s, err := c.stop(schemas.StopRequest{Delete: true})
	testkit.WantCode(t, err, schemas.CodeInternal)
	testkit.Contains(t, "error", err.Error(), "the store is down")
	testkit.Equal(t, "unpushed", s.Unpushed.Code, schemas.CodeUnavailable)
	c.wantNoSession("t")
	c.must(errorOf(os.Stat(dir)))
}

// TestDeadWorkersWorkspaceIsOwed has another worker end the expired session of a dead one. Ten minutes 5.
func TestDeadWorkersWorkspaceIsOwed(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty, still, with(syncing))
	c.must(errorOf(c.place(schemas.PlaceRequest{IdleTimeoutMS: 1000})))
	c.exec(command("k", sh("echo unsaved >file")))
	was := c.session()
	for was.Sandbox == "" && c.ctx.Err() == nil { // stored after the command has begun
		was = c.session()
	}
	dead.die()
	c.worker("w2", with(syncing), func(cfg *processor.Config) { cfg.OrphansEvery = 20 * time.Millisecond })
	c.awaitEvent(schemas.TypeSessionExpired)
	owed, err := c.conn.Owed.OwedPushes(c.ctx, "w1")
	c.must(err)
	testkit.Equal(t, "number of owed pushes", len(owed), 1)
	wantFields(t, owed[0], schemas.OwedPush{Tenant: "default", Thread: "t", Worker: "w1", Session: was.ID, Template: "default"})
}

// unstored are the sessions of a worker that dies before it has stored more of a session than its claim.
type unstored struct{ processor.Sessions }

// SaveSession stores claims alone.
func (u unstored) SaveSession(ctx context.Context, s *schemas.Session, revision uint64) (uint64, error) {
	if s.Sandbox != "" {
		return 0, schemas.Errorf(schemas.CodeUnavailable, "the worker is dead")
	}
	return u.Sessions.SaveSession(ctx, s, revision)
}

// TestDeadWorkersWorkspaceIsOwedWithoutItsSandbox is the same for a worker that died before the session's entry named a sandbox. Ten minutes 5.
func TestDeadWorkersWorkspaceIsOwedWithoutItsSandbox(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty, still, with(syncing), func(cfg *processor.Config) { cfg.Sessions = unstored{cfg.Sessions} })
	c.must(errorOf(c.place(schemas.PlaceRequest{IdleTimeoutMS: 1000})))
	c.exec(command("k", sh("echo unsaved >file")))
	equal(t, "sandbox in the entry", c.session().Sandbox, "")
	dead.die()
	c.worker("w2", with(syncing), func(cfg *processor.Config) { cfg.OrphansEvery = 20 * time.Millisecond })
	c.awaitEvent(schemas.TypeSessionExpired)
	owed, err := c.conn.Owed.OwedPushes(c.ctx, "w1")
	c.must(err)
	testkit.Equal(t, "number of owed pushes", len(owed), 1)
}
