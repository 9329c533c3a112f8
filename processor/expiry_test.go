package processor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMaxLifetimeEndsRunningProcesses(t *testing.T) {
	c, w := newRig(t, still, func(cfg *processor.Config) { cfg.StopGrace = time.Millisecond })
	c.must(errorOf(c.place(schemas.PlaceRequest{MaxLifetimeMS: 1})))
	call := c.start(command("k", sh("echo on; sleep 300")), "on")
	w.expireIdle(c.ctx) // a session whose time is over before a command comes would have a successor without a lifetime
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
	c.awaitEvent(schemas.TypeSessionExpired)
}

func TestRenewExtendsTheExpiry(t *testing.T) {
	c, _ := newRig(t)
	c.must(errorOf(c.place(schemas.PlaceRequest{})))
	before := c.session()
	s, err := c.conn.RenewSession(c.ctx, schemas.DefaultTenant, "t", schemas.RenewRequest{IdleTimeoutMS: 3_600_000})
	c.must(err)
	if !s.Expires.After(before.Expires.Add(20 * time.Minute)) {
		t.Errorf("expires %v, want more than 20 min after %v", s.Expires, before.Expires)
	}
	if !s.LastActivity.After(before.LastActivity) {
		t.Errorf("last activity %v, want after %v", s.LastActivity, before.LastActivity)
	}
	stored := c.session()
	equal(t, "stored expiry", stored.Expires, s.Expires)
	equal(t, "stored idle timeout", stored.IdleTimeoutMS, 3_600_000)
	_, err = c.conn.RenewSession(c.ctx, schemas.DefaultTenant, "t", schemas.RenewRequest{Session: "another"})
	testkit.WantCode(t, err, schemas.CodeSessionExpired)
	testkit.WantCode(t, errorOf(c.conn.RenewSession(c.ctx, schemas.DefaultTenant, "none", schemas.RenewRequest{})), schemas.CodeNotFound)
}

func TestParkedSessionResumesWithItsWorkspace(t *testing.T) {
	c := newCell(t)
	h := &hooks{}
	w := c.worker("w1", soon, with(&schemas.Template{Name: "default", Session: schemas.TemplateSession{ParkAfterMS: 20}}), func(cfg *processor.Config) { cfg.Hooks = h })
	c.exec(command("k1", sh("echo kept >file")))
	c.awaitEvent(schemas.TypeSandboxCompleted)
	w.Sessions().Find("default", "t").Flush(c.ctx)
	wantFields(t, c.session(), schemas.Session{Parked: true, State: schemas.SandboxCompleted})
	<-w.provider.sandboxes()[0].Done()
	wantFields(t, c.exec(command("k2", sh("cat file"))), schemas.Result{Stdout: "kept\n", Epoch: 1})
	equal(t, "number of cold starts", len(h.of(schemas.PhaseColdStart)), 1)
	equal(t, "number of sandboxes", len(w.provider.sandboxes()), 2)
}

func TestSessionIsUnchangedAfterARestart(t *testing.T) {
	c, w := newRig(t)
	c.must(errorOf(c.place(schemas.PlaceRequest{User: "ann", Tags: map[string]string{"a": "b"}, Start: true})))
	c.exec(command("k", sh(":")))
	w.Sessions().Find("default", "t").Flush(c.ctx)
	before := c.session()
	w.die()
	c.worker("w1", soon)
	after := c.session()
	wantFields(t, after, schemas.Session{
		ID: before.ID, User: "ann", Tags: map[string]string{"a": "b"}, State: schemas.SandboxRunning, Sandbox: before.Sandbox, Expires: before.Expires,
	})
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Epoch: 2})
	wantFields(t, c.session(), schemas.Session{ID: before.ID, User: "ann", Created: before.Created})
}

func TestWorkerEndsExpiredSessionsOfADeadWorker(t *testing.T) {
	c, dead := newRig(t, hasty, still)
	for _, thread := range []string{"t", "own"} {
		c.must(errorOf(c.place(schemas.PlaceRequest{Thread: thread, IdleTimeoutMS: 1})))
	}
	dead.die()
	often := func(cfg *processor.Config) { cfg.OrphansEvery = 20 * time.Millisecond }
	c.worker("w2", often)
	equal(t, "source", c.awaitEvent(schemas.TypeSessionExpired).Source, "w2")
}

func TestNextIncarnationEndsItsExpiredSessions(t *testing.T) {
	c := newCell(t)
	store := t.TempDir()
	h := &hooks{do: pushed(store)}
	dead := c.worker("w1", hasty, still, hooked(h))
	c.must(errorOf(c.place(schemas.PlaceRequest{IdleTimeoutMS: 1000})))
	c.exec(command("k", sh("echo unsaved >file")))
	dead.die()
	c.worker("w1", func(cfg *processor.Config) { cfg.Hooks, cfg.OrphansEvery = h, 20*time.Millisecond })
	c.awaitEvent(schemas.TypeSessionExpired)
	if b, err := os.ReadFile(filepath.Join(store, "t")); err != nil || string(b) != "unsaved\n" {
		t.Fatalf("stored workspace = %q, error %v; want the unsaved file", b, err)
	}
}

func TestCommandDoesNotUseAnExpiredSession(t *testing.T) {
	c, dead := newRig(t, hasty, still)
	c.must(errorOf(c.place(schemas.PlaceRequest{IdleTimeoutMS: 1})))
	was := c.session()
	dead.die()
	c.worker("w1")
	bound := command("bound", sh(":"))
	bound.Session = was.ID
	testkit.WantCode(t, errorOf(c.conn.Send(c.ctx, schemas.DefaultTenant, bound)), schemas.CodeSessionExpired)
	if r := c.exec(command("k", sh(":"))); r.Epoch <= was.Epoch {
		t.Errorf("epoch of the next session = %d, want more than %d", r.Epoch, was.Epoch)
	}
	if s := c.session(); s.ID == was.ID {
		t.Fatalf("session %s is still there, want a new one", s.ID)
	}
	c.awaitEvent(schemas.TypeSandboxRunning)
	c.wantEvents("t", schemas.TypeSessionCreated, schemas.TypeSessionExpired, schemas.TypeSessionCreated,
		schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeColdStartFinished, schemas.TypeSandboxRunning)
}

func TestShutdownHandsThreadsOverWithTheirWorkspaces(t *testing.T) {
	c := newCell(t)
	store := t.TempDir()
	h := &hooks{do: pushed(store)}
	elsewhere := func(name string) func(*processor.Config) {
		return func(cfg *processor.Config) { cfg.Hooks, cfg.Workspaces = h, filepath.Join(c.dir, name) }
	}
	first := c.worker("w1", elsewhere("one"))
	c.exec(command("k1", sh("echo kept >file")))
	first.stop()
	wantFields(t, c.session(), schemas.Session{State: schemas.SandboxTerminated, Owner: "w1"})
	c.worker("w2", elsewhere("two"))
	wantFields(t, c.exec(command("k2", sh("cat file"))), schemas.Result{Stdout: "kept\n", Epoch: 2, Worker: "w2"})
	if calls := h.of(schemas.PhaseColdStart); len(calls) != 2 || calls[0].data.Occasion == calls[1].data.Occasion {
		t.Fatalf("cold starts are %+v, want 2 of different occasions", calls)
	}
}

func TestSandboxThatEndsByItselfIsReportedAndReplaced(t *testing.T) {
	c, w := newRig(t)
	c.exec(command("k1", sh(":")))
	c.must(w.provider.sandboxes()[0].Terminate(c.ctx, 0))
	c.awaitEvent(schemas.TypeSandboxCompleted)
	w.Sessions().Find("default", "t").Flush(c.ctx)
	s := c.session()
	equal(t, "state", s.State, schemas.SandboxCompleted)
	equal(t, "parked", s.Parked, false)
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
	w.Sessions().Find("default", "t").Flush(c.ctx)
	equal(t, "state", c.session().State, schemas.SandboxRunning)
}
