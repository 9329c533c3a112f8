package processor_test

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
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// eventTypes are the types of a thread's events that are no process records, in order.
func (c *cell) eventTypes(thread string) (out []schemas.EventType) {
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

func (c *cell) wantEvents(thread string, want ...schemas.EventType) {
	c.t.Helper()
	if got := c.eventTypes(thread); !slices.Equal(got, want) {
		c.t.Fatalf("events are %v, want %v", got, want)
	}
}

// awaitEvent waits for an event of thread t.
func (c *cell) awaitEvent(typ schemas.EventType) *schemas.Event {
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

// wholeLife are the events of a session with one sandbox that is stopped.
func wholeLife(begin, end schemas.EventType) []schemas.EventType {
	return []schemas.EventType{
		begin, schemas.TypeSandboxPending, schemas.TypeSandboxCreating, schemas.TypeColdStartFinished, schemas.TypeSandboxRunning,
		schemas.TypeSandboxTerminated, end,
	}
}

func TestConcurrentPlacesGetOneSession(t *testing.T) {
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
			t.Fatalf("place = %+v, want a session", r)
		}
		if id == "" {
			id, user = r.Session.ID, r.Session.User
		}
		if r.Created {
			created++
		}
		wantFields(t, r.Session, schemas.Session{ID: id, User: user})
		equal(t, "tag n", r.Session.Tags["n"], user[1:])
	}
	if created != 1 {
		t.Fatalf("%d sessions were created, want 1", created)
	}
	s := c.session()
	wantFields(t, s, schemas.Session{ID: id, User: user, Epoch: 1})
	equal(t, "idle time", s.Expires.Sub(s.LastActivity), time.Minute)
}

func TestSessionRefusesAnotherPlacementOrTemplate(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", with(&schemas.Template{Name: "one"}, &schemas.Template{Name: "two"}), func(cfg *processor.Config) {
		cfg.Providers["other"] = cfg.Providers["local"]
	})
	if r, err := c.place(schemas.PlaceRequest{Template: "one"}); err != nil || !r.Created || r.Session.Template != "one" {
		t.Fatalf("place = %+v, error %v; want a new session of template one", r, err)
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
			t.Errorf("place %+v: error %v, want code %q", k, err, k.code)
		}
		cmd := command(fmt.Sprintf("k%+v", k), sh(":"))
		cmd.Template, cmd.Provider, cmd.Session = k.template, k.provider, k.session
		v, answers := w.deliver(cmd, true, 1)
		if r := c.terminal(answers); v.Action != schemas.ActionDone || (k.code == "") != r.Success || (k.code != "" && r.Error.Code != k.code) {
			t.Errorf("command %+v: action %v, error %v; want done and code %q", k, v.Action, r.Error, k.code)
		}
	}
	if _, err := c.place(schemas.PlaceRequest{Thread: "new", Template: "none"}); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("unknown template: error %v, want not_found", err)
	}
	bound := command("bound", sh(":"))
	bound.Thread, bound.Session = "new", "gone"
	if _, err := c.conn.Send(c.ctx, schemas.DefaultTenant, bound); !errors.Is(err, schemas.ErrSessionExpired) {
		t.Errorf("command of an ended session: error %v, want session_expired", err)
	}
	if _, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, "new"); !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("a refused request made a session: error %v, want %v", err, schemas.ErrNotFound)
	}
}

func TestStoppedSessionIsReportedAndDeleted(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	first := c.exec(command("k1", sh("echo one >file")))
	cmd := command("k2", sh("trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.1; done"))
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	was := c.session()
	s, err := c.stop(schemas.StopRequest{Session: was.ID})
	c.must(err)
	wantFields(t, s, schemas.Session{ID: was.ID, State: schemas.SandboxTerminated})
	equal(t, "epoch", first.Epoch, 1)
	if s.Sandbox == "" {
		t.Error("the stopped session names no sandbox")
	}
	if r := c.end(call); r.Reason != schemas.ReasonKilled && r.ExitCode != 3 {
		t.Fatalf("reason = %s, exit code %d; want killed, or 3", r.Reason, r.ExitCode)
	}
	c.wantEvents("t", wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated)...)
	<-w.provider.sandboxes()[0].Done()
	if _, err := c.stop(schemas.StopRequest{}); !errors.Is(err, schemas.ErrNotFound) {
		t.Fatalf("second stop: error %v, want not_found", err)
	}
	if last, err := c.conn.LastEnded(c.ctx, schemas.DefaultTenant, "t"); err != nil || last.ID != was.ID {
		t.Fatalf("last ended session = %+v, error %v; want %s", last, err, was.ID)
	}
	// The next session has the same workspace, until delete.
	wantFields(t, c.exec(command("k3", sh("cat file"))), schemas.Result{Stdout: "one\n"})
	dir := c.session().Workspace
	c.must(os.Symlink(c.dir, filepath.Join(dir, "out")))
	if _, err := c.stop(schemas.StopRequest{Delete: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("workspace after delete: error %v, want that it does not exist", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "nats")); err != nil {
		t.Fatalf("delete removed more than the workspace: %v", err)
	}
}

func TestConcurrentStopsAreOneEnd(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *processor.Config) { cfg.StopGrace = 50 * time.Millisecond })
	// The end waits for the sandbox that is being created.
	held := make(chan struct{})
	create := w.provider.create
	w.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		<-held
		return create(ctx, spec)
	}
	call := c.send(command("k", sh("sleep 300")))
	c.awaitEvent(schemas.TypeSandboxCreating)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if s, err := c.stop(schemas.StopRequest{Session: w.Sessions().Find("default", "t").Session.ID}); err != nil || s.Thread != "t" {
				t.Errorf("stop = %+v, error %v; want the session of thread t", s, err)
			}
		})
	}
	c.await(func(*schemas.Event) bool { return w.Sessions().Find("default", "t").Ending() })
	close(held)
	all.Wait()
	equal(t, "success", c.end(call).Success, false)
	got := c.eventTypes("t")
	if n := len(slices.DeleteFunc(slices.Clone(got), func(e schemas.EventType) bool { return e != schemas.TypeSessionTerminated })); n != 1 {
		t.Fatalf("%d session.terminated in %v, want 1", n, got)
	}
	if sb := w.provider.sandboxes(); len(sb) == 1 {
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
		t.Fatalf("error = %v, want %v", err, schemas.ErrLost)
	}
	id := c.session().ID
	c.must(w.Amend(c.ctx, "default", "t", id, func(s *schemas.Session) { s.Version = "v7" }))
	wantFields(t, c.session(), schemas.Session{Version: "v7"})
	// Another owner's epoch.
	s, rev, err := c.conn.Session(c.ctx, "default", "t")
	c.must(err)
	s.Epoch, s.Owner = 2, "w2"
	_, err = c.conn.SaveSession(c.ctx, s, rev)
	c.must(err)
	if err := w.Owns(c.ctx, "default", "t", 1); !errors.Is(err, schemas.ErrLost) {
		t.Fatalf("error = %v, want %v", err, schemas.ErrLost)
	}
	if err := w.Amend(c.ctx, "default", "t", id, func(*schemas.Session) {}); !errors.Is(err, schemas.ErrLost) {
		t.Fatalf("error = %v, want %v", err, schemas.ErrLost)
	}
}

func TestManyThreadsPublishTheirEventsInOrder(t *testing.T) {
	c := newCell(t)
	// A busy machine, or the race detector, needs more time.
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Timeout)
	defer cancel()
	c.ctx = ctx
	c.worker("w1", func(cfg *processor.Config) { cfg.StopGrace = time.Second })
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
		c.wantEvents(fmt.Sprint("t", i), wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated)...)
	}
	left := 0
	c.must(c.conn.EachSession(c.ctx, func(*schemas.Session, uint64) error {
		left++
		return nil
	}))
	if left != 0 {
		t.Fatalf("%d sessions are left, want none", left)
	}
}
