package processor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// told are the types of all that is no process record, of a thread, in order.
func (c *cell) told(thread string) (out []schemas.EventType) {
	c.t.Helper()
	_, err := c.conn.ReadEvents(c.ctx, events.Filter{Thread: thread}, 1, func(ev *schemas.Event) error {
		if !ev.Type.OfProcess() {
			out = append(out, ev.Type)
		}
		return nil
	})
	c.must(err)
	return out
}

func (c *cell) wantTold(thread string, want ...schemas.EventType) {
	c.t.Helper()
	if got := c.told(thread); !slices.Equal(got, want) {
		c.t.Fatalf("%v was told, want %v", got, want)
	}
}

// awaitTold waits for an event of thread t.
func (c *cell) awaitTold(typ schemas.EventType) *schemas.Event {
	c.t.Helper()
	return c.await(func(ev *schemas.Event) bool { return ev.Thread == "t" && ev.Type == typ })
}

func (c *cell) session() *schemas.Session {
	c.t.Helper()
	s, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, "t")
	c.must(err)
	return s
}

func (c *cell) place(req schemas.PlaceRequest) (*schemas.PlaceReply, error) {
	if req.Thread == "" {
		req.Thread = "t"
	}
	return c.conn.Place(c.ctx, schemas.DefaultTenant, req)
}

func (c *cell) stop(req schemas.StopRequest) (*schemas.Session, error) {
	return c.conn.StopSession(c.ctx, schemas.DefaultTenant, "t", req)
}

// wholeLife is what is told of a session with one sandbox that is stopped.
func wholeLife(begin, end schemas.EventType) []schemas.EventType {
	return []schemas.EventType{
		begin, schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeColdStartFinished, schemas.TypeSandboxRunning,
		schemas.TypeSandboxTerminated, end,
	}
}

func TestRacingCreatorsGetOneSession(t *testing.T) {
	c := newCell(t)
	c.worker("w1")
	c.worker("w2")
	var all sync.WaitGroup
	replies := make(chan *schemas.PlaceReply, 16)
	for i := range cap(replies) {
		all.Go(func() {
			r, err := c.place(schemas.PlaceRequest{User: fmt.Sprint("u", i), Tags: map[string]string{"n": fmt.Sprint(i)}, IdleTimeoutMS: 60_000})
			if err != nil {
				t.Error(err)
			}
			replies <- r
		})
	}
	all.Wait()
	close(replies)
	created := 0
	var id, user string
	for r := range replies {
		if r == nil || r.Session == nil {
			t.Fatalf("%+v", r)
		}
		if id == "" {
			id, user = r.Session.ID, r.Session.User
		}
		if r.Created {
			created++
		}
		if r.Session.ID != id || r.Session.User != user || r.Session.Tags["n"] != user[1:] {
			t.Errorf("%+v", r.Session)
		}
	}
	if created != 1 {
		t.Fatalf("%d sessions were created", created)
	}
	if s := c.session(); s.ID != id || s.User != user || !s.Expires.Equal(s.LastActivity.Add(time.Minute)) || s.Epoch != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestASessionOfAnotherKindIsAConflict(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", with(&schemas.Template{Name: "one"}, &schemas.Template{Name: "two"}), func(cfg *Config) {
		cfg.Providers["other"] = cfg.Providers["local"]
	})
	if r, err := c.place(schemas.PlaceRequest{Template: "one"}); err != nil || !r.Created || r.Session.Template != "one" {
		t.Fatalf("%+v %v", r, err)
	}
	for _, k := range []struct {
		template, provider, session string
		code                        schemas.Code
	}{
		{"two", "", "", schemas.CodeConflict}, {"none", "", "", schemas.CodeConflict}, {"", "other", "", schemas.CodeConflict},
		{"", "", "another", schemas.CodeSessionExpired}, {"one", "local", c.session().ID, ""}, {"", "auto", "", ""},
	} {
		_, err := c.place(schemas.PlaceRequest{Template: k.template, Provider: k.provider})
		if k.session == "" && schemas.CodeOf(err) != k.code && (err != nil || k.code != "") {
			t.Errorf("place %+v: %v", k, err)
		}
		cmd := command(fmt.Sprintf("k%+v", k), sh(":"))
		cmd.Template, cmd.Provider, cmd.Session = k.template, k.provider, k.session
		v, answers := w.deliver(cmd, true, 1)
		if r := c.terminal(answers); v.Action != schemas.ActionDone || (k.code == "") != r.Success || (k.code != "" && r.Error.Code != k.code) {
			t.Errorf("command %+v: %+v %v", k, v, r.Error)
		}
	}
	if _, err := c.place(schemas.PlaceRequest{Thread: "new", Template: "none"}); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a template that is not there: %v", err)
	}
	bound := command("bound", sh(":"))
	bound.Thread, bound.Session = "new", "gone"
	if _, err := c.conn.Send(c.ctx, schemas.DefaultTenant, bound); !errors.Is(err, schemas.ErrSessionExpired) {
		t.Errorf("a command for a session that is gone: %v", err)
	}
	if _, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, "new"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a session was made that nobody wanted: %v", err)
	}
}

func TestAStoppedSessionHasToldItsWholeLifeAndIsGone(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	first := c.exec(command("k1", sh("echo one >file")))
	cmd := command("k2", sh("trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.1; done"))
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	was := c.session()
	s, err := c.stop(schemas.StopRequest{Session: was.ID})
	c.must(err)
	if s.ID != was.ID || s.State != schemas.SandboxTerminated || s.Sandbox == "" || first.Epoch != 1 {
		t.Fatalf("%+v", s)
	}
	if r := c.end(call); r.Reason != schemas.ReasonKilled && r.ExitCode != 3 {
		t.Fatalf("%+v", r)
	}
	c.wantTold("t", wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated)...)
	<-w.stage.sandboxes()[0].Done()
	if _, err := c.stop(schemas.StopRequest{}); !errors.Is(err, schemas.ErrNotFound) {
		t.Fatalf("stopped again: %v", err)
	}
	if last, err := c.conn.LastEnded(c.ctx, schemas.DefaultTenant, "t"); err != nil || last.ID != was.ID {
		t.Fatalf("%+v %v", last, err)
	}
	// Its workspace is there for the next one, and goes with delete.
	if r := c.exec(command("k3", sh("cat file"))); r.Stdout != "one\n" {
		t.Fatalf("%+v", r)
	}
	dir := c.session().Workspace
	c.must(os.Symlink(c.dir, filepath.Join(dir, "out")))
	if _, err := c.stop(schemas.StopRequest{Delete: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("the workspace is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "nats")); err != nil {
		t.Fatalf("more than the workspace went: %v", err)
	}
}

func TestStopsAtTheSameTimeAreOne(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *Config) { cfg.StopGrace = 50 * time.Millisecond })
	// The sandbox is just being made: it is waited for.
	held := make(chan struct{})
	create := w.stage.create
	w.stage.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		<-held
		return create(ctx, spec)
	}
	call := c.send(command("k", sh("sleep 300")))
	c.awaitTold(schemas.TypeSandboxCreating)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if s, err := c.stop(schemas.StopRequest{Session: w.threadOf("default", "t").session.ID}); err != nil || s.Thread != "t" {
				t.Errorf("%+v %v", s, err)
			}
		})
	}
	c.await(func(*schemas.Event) bool { return w.threadOf("default", "t").ends() })
	close(held)
	all.Wait()
	if r := c.end(call); r.Success {
		t.Fatalf("%+v", r)
	}
	got := c.told("t")
	if n := len(slices.DeleteFunc(slices.Clone(got), func(e schemas.EventType) bool { return e != schemas.TypeSessionTerminated })); n != 1 {
		t.Fatalf("%d ends: %v", n, got)
	}
	if sb := w.stage.sandboxes(); len(sb) == 1 {
		<-sb[0].Done()
	}
}

func TestOwnsIsFenced(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	c.exec(command("k", sh(":")))
	if err := w.Owns(c.ctx, "default", "t", 1); err != nil {
		t.Fatal(err)
	}
	if err := w.Owns(c.ctx, "default", "t", 2); !errors.Is(err, schemas.ErrLost) {
		t.Fatal(err)
	}
	id := c.session().ID
	c.must(w.Amend(c.ctx, "default", "t", id, func(s *schemas.Session) { s.Version = "v7" }))
	if s := c.session(); s.Version != "v7" {
		t.Fatalf("%+v", s)
	}
	// Another owner's epoch.
	s, rev, err := c.conn.Session(c.ctx, "default", "t")
	c.must(err)
	s.Epoch, s.Owner = 2, "w2"
	_, err = c.conn.SaveSession(c.ctx, s, rev)
	c.must(err)
	if err := w.Owns(c.ctx, "default", "t", 1); !errors.Is(err, schemas.ErrLost) {
		t.Fatal(err)
	}
	if err := w.Amend(c.ctx, "default", "t", id, func(*schemas.Session) {}); !errors.Is(err, schemas.ErrLost) {
		t.Fatal(err)
	}
}

func TestManyThreadsLiveTheirWholeLifeInOrder(t *testing.T) {
	c := newCell(t)
	// There is much to do for a machine that is busy, and a race detector.
	ctx, cancel := context.WithTimeout(t.Context(), 4*patient)
	defer cancel()
	c.ctx = ctx
	c.worker("w1", func(cfg *Config) { cfg.StopGrace = time.Second })
	const threads = 100
	n := 5
	if os.Getenv("SLUICE_LONG") != "" {
		n = 20
	}
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			thread := fmt.Sprint("t", i)
			if _, err := c.place(schemas.PlaceRequest{Thread: thread}); err != nil {
				t.Error(err)
				return
			}
			for k := range n {
				cmd := command(fmt.Sprint("k", k), schemas.Exec{Command: "true"})
				cmd.Thread = thread
				call, err := c.conn.Send(c.ctx, schemas.DefaultTenant, cmd)
				if err != nil {
					t.Error(err)
					return
				}
				for {
					ev, err := call.Next(c.ctx)
					if err != nil {
						t.Error(err)
						return
					}
					if ev.Type.Terminal() {
						break
					}
				}
				call.Close()
			}
			if _, err := c.conn.StopSession(c.ctx, schemas.DefaultTenant, thread, schemas.StopRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range threads {
		c.wantTold(fmt.Sprint("t", i), wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated)...)
	}
	left := 0
	c.must(c.conn.EachSession(c.ctx, func(*schemas.Session, uint64) error {
		left++
		return nil
	}))
	if left != 0 {
		t.Fatalf("%d sessions are left", left)
	}
}
