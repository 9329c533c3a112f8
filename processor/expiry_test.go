package processor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

func TestTheMaximumLifetimeEndsWhateverRuns(t *testing.T) {
	c := newCell(t)
	c.worker("w1", soon, func(cfg *Config) { cfg.StopGrace = time.Millisecond })
	_, err := c.place(schemas.PlaceRequest{MaxLifetimeMS: 500})
	c.must(err)
	call := c.send(command("k", sh("sleep 300")))
	if r := c.end(call); r.Reason != schemas.ReasonKilled && r.Reason != schemas.ReasonRejected {
		t.Fatalf("%+v", r)
	}
	c.awaitTold(schemas.TypeSessionExpired)
}

func TestRenewMovesTheExpiryOn(t *testing.T) {
	c := newCell(t)
	c.worker("w1")
	_, err := c.place(schemas.PlaceRequest{})
	c.must(err)
	before := c.session()
	s, err := c.conn.RenewSession(c.ctx, schemas.DefaultTenant, "t", schemas.RenewRequest{IdleTimeoutMS: 3_600_000})
	c.must(err)
	if !s.Expires.After(before.Expires.Add(20*time.Minute)) || !s.LastActivity.After(before.LastActivity) {
		t.Fatalf("%+v, was %+v", s, before)
	}
	if now := c.session(); !now.Expires.Equal(s.Expires) || now.IdleTimeoutMS != 3_600_000 {
		t.Fatalf("%+v", now)
	}
	if _, err := c.conn.RenewSession(c.ctx, schemas.DefaultTenant, "t", schemas.RenewRequest{Session: "another"}); !errors.Is(err, schemas.ErrSessionExpired) {
		t.Fatal(err)
	}
	if _, err := c.conn.RenewSession(c.ctx, schemas.DefaultTenant, "none", schemas.RenewRequest{}); !errors.Is(err, schemas.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestAParkedSessionWakesWithItsWorkspace(t *testing.T) {
	c := newCell(t)
	h := &hooks{}
	w := c.worker("w1", soon, with(&schemas.Template{Name: "default", Session: schemas.TemplateSession{ParkAfterMS: 20}}), func(cfg *Config) { cfg.Hooks = h })
	c.exec(command("k1", sh("echo kept >file")))
	c.awaitTold(schemas.TypeSandboxCompleted)
	w.threadOf("default", "t").settleNotes(c.ctx)
	if s := c.session(); !s.Parked || s.State != schemas.SandboxCompleted {
		t.Fatalf("%+v", s)
	}
	<-w.stage.sandboxes()[0].Done()
	if r := c.exec(command("k2", sh("cat file"))); r.Stdout != "kept\n" || r.Epoch != 1 {
		t.Fatalf("%+v", r)
	}
	if n := len(h.of(schemas.PhaseColdStart)); n != 1 {
		t.Fatalf("%d cold starts", n)
	}
	if n := len(w.stage.sandboxes()); n != 2 {
		t.Fatalf("%d sandboxes", n)
	}
}

func TestTheSessionIsTheSameAfterARestart(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	_, err := c.place(schemas.PlaceRequest{User: "ann", Tags: map[string]string{"a": "b"}, Start: true})
	c.must(err)
	c.exec(command("k", sh(":")))
	w.threadOf("default", "t").settleNotes(c.ctx)
	before := c.session()
	w.die()
	c.worker("w1", soon)
	after := c.session()
	if after.ID != before.ID || after.User != "ann" || after.Tags["a"] != "b" || after.State != schemas.SandboxRunning || after.Sandbox != before.Sandbox || !after.Expires.Equal(before.Expires) {
		t.Fatalf("%+v, was %+v", after, before)
	}
	if r := c.exec(command("k2", sh(":"))); r.Epoch != 2 {
		t.Fatalf("%+v", r)
	}
	if s := c.session(); s.ID != before.ID || s.User != "ann" || s.Created != before.Created {
		t.Fatalf("%+v", s)
	}
}

func TestAnExpiredSessionOfADeadWorkerIsEndedByAnother(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	for _, thread := range []string{"t", "own"} {
		_, err := c.place(schemas.PlaceRequest{Thread: thread, IdleTimeoutMS: 1})
		c.must(err)
	}
	dead.die()
	often := func(cfg *Config) { cfg.OrphansEvery = 20 * time.Millisecond }
	c.worker("w2", often)
	ev := c.awaitTold(schemas.TypeSessionExpired)
	if ev.Source != "w2" {
		t.Fatalf("%+v", ev)
	}
}

func TestAnExpiredSessionIsEndedByItsWorkersNextIncarnation(t *testing.T) {
	c := newCell(t)
	store := t.TempDir()
	h := &hooks{do: pushed(store)}
	dead := c.worker("w1", hasty, func(cfg *Config) { cfg.Hooks = h })
	_, err := c.place(schemas.PlaceRequest{IdleTimeoutMS: 1000})
	c.must(err)
	c.exec(command("k", sh("echo unsaved >file")))
	dead.die()
	c.worker("w1", func(cfg *Config) { cfg.Hooks, cfg.OrphansEvery = h, 20*time.Millisecond })
	c.awaitTold(schemas.TypeSessionExpired)
	if b, err := os.ReadFile(filepath.Join(store, "t")); err != nil || string(b) != "unsaved\n" {
		t.Fatalf("%q %v", b, err)
	}
}

func TestACommandFindsNoExpiredSession(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	_, err := c.place(schemas.PlaceRequest{IdleTimeoutMS: 1})
	c.must(err)
	was := c.session()
	dead.die()
	c.worker("w1")
	bound := command("bound", sh(":"))
	bound.Session = was.ID
	if _, err := c.conn.Send(c.ctx, schemas.DefaultTenant, bound); !errors.Is(err, schemas.ErrSessionExpired) {
		t.Fatal(err)
	}
	if r := c.exec(command("k", sh(":"))); r.Epoch != 1 {
		t.Fatalf("%+v", r)
	}
	if s := c.session(); s.ID == was.ID {
		t.Fatalf("%+v", s)
	}
	c.awaitTold(schemas.TypeSandboxRunning)
	c.wantTold("t", schemas.TypeSessionCreated, schemas.TypeSessionExpired, schemas.TypeSessionCreated,
		schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeColdStartFinished, schemas.TypeSandboxRunning)
}

func TestAShutdownHandsItsThreadsOverWithTheirWorkspaces(t *testing.T) {
	c := newCell(t)
	store := t.TempDir()
	h := &hooks{do: pushed(store)}
	elsewhere := func(name string) func(*Config) {
		return func(cfg *Config) { cfg.Hooks, cfg.Workspaces = h, filepath.Join(c.dir, name) }
	}
	first := c.worker("w1", elsewhere("one"))
	c.exec(command("k1", sh("echo kept >file")))
	first.stop()
	if s := c.session(); s.State != schemas.SandboxTerminated || s.Owner != "w1" {
		t.Fatalf("%+v", s)
	}
	c.worker("w2", elsewhere("two"))
	if r := c.exec(command("k2", sh("cat file"))); r.Stdout != "kept\n" || r.Epoch != 2 || r.Worker != "w2" {
		t.Fatalf("%+v %v", r, r.Error)
	}
	if calls := h.of(schemas.PhaseColdStart); len(calls) != 2 || calls[0].data.Occasion == calls[1].data.Occasion {
		t.Fatalf("%+v", calls)
	}
}

func TestASandboxThatEndsByItselfIsToldAndReplaced(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	c.exec(command("k1", sh(":")))
	c.must(w.stage.sandboxes()[0].Terminate(c.ctx, 0))
	c.awaitTold(schemas.TypeSandboxCompleted)
	w.threadOf("default", "t").settleNotes(c.ctx)
	if s := c.session(); s.State != schemas.SandboxCompleted || s.Parked {
		t.Fatalf("%+v", s)
	}
	if r := c.exec(command("k2", sh(":"))); !r.Success {
		t.Fatalf("%+v", r)
	}
	c.await(func(*schemas.Event) bool { return w.info(w.threadOf("default", "t")).State == schemas.SandboxRunning })
}
