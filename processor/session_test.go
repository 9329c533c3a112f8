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

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

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
	c, _ := newRig(t)
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
	equal(t, "sessions created", created, 1)
	s := c.session()
	wantFields(t, s, schemas.Session{ID: id, User: user, Epoch: 1})
	equal(t, "idle time", s.Expires.Sub(s.LastActivity), time.Minute)
}

func TestSessionRefusesAnotherPlacementOrTemplate(t *testing.T) {
	c, w := newRig(t, with(&schemas.Template{Name: "one"}, &schemas.Template{Name: "two"}), func(cfg *processor.Config) {
		cfg.Providers["other"] = cfg.Providers["local"]
	})
	if r, err := c.place(schemas.PlaceRequest{Template: "one", Start: true}); err != nil || !r.Created || r.Session.Template != "one" {
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
	testkit.WantCode(t, errorOf(c.place(schemas.PlaceRequest{Thread: "new", Template: "none"})), schemas.CodeNotFound)
	bound := command("bound", sh(":"))
	bound.Thread, bound.Session = "new", "gone"
	testkit.WantCode(t, errorOf(c.conn.Send(c.ctx, schemas.DefaultTenant, bound)), schemas.CodeSessionExpired)
	c.wantNoSession("new") // a refused request makes none
}

// A stop that joins another one shortens its grace, and lengthens none.
func TestStopThatJoinsShortensTheGrace(t *testing.T) {
	c, w := newRig(t)
	call := c.start(command("k1", sh("trap '' TERM; echo on; while :; do sleep 0.1; done")), "on")
	replies := make(chan schemas.SessionReply, 3)
	for _, grace := range []time.Duration{time.Hour, 100 * time.Millisecond, time.Hour} {
		ms := grace.Milliseconds()
		req := schemas.SessionControl{Tenant: schemas.DefaultTenant, Thread: "t", Stop: &schemas.StopRequest{GraceMS: &ms}}
		w.HandleSession(c.ctx, req, func(r schemas.SessionReply) { replies <- r })
	}
	equal(t, "reason", c.end(call).Reason, schemas.ReasonKilled)
	for range cap(replies) {
		select {
		case r := <-replies:
			if r.Error != nil {
				t.Errorf("stop: %v", r.Error)
			}
		case <-c.ctx.Done():
			t.Fatal("no answer to a stop")
		}
	}
}

func TestStoppedSessionIsReportedAndDeleted(t *testing.T) {
	c, w := newRig(t)
	first := c.exec(command("k1", sh("echo one >file")))
	cmd := command("k2", sh("trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.1; done"))
	call := c.start(cmd, "on")
	was := c.session()
	s, err := c.stop(schemas.StopRequest{Session: was.ID})
	c.must(err)
	wantFields(t, s, schemas.Session{ID: was.ID, State: schemas.SandboxTerminated})
	equal(t, "epoch", first.Epoch, 1)
	equal(t, "the stopped session names a sandbox", s.Sandbox != "", true)
	if r := c.end(call); r.Reason != schemas.ReasonKilled && r.ExitCode != 3 {
		t.Fatalf("reason = %s, exit code %d; want killed, or 3", r.Reason, r.ExitCode)
	}
	c.wantEvents("t", wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated)...)
	<-w.provider.sandboxes()[0].Done()
	testkit.WantCode(t, errorOf(c.stop(schemas.StopRequest{})), schemas.CodeNotFound)
	last, err := c.conn.LastEnded(c.ctx, schemas.DefaultTenant, "t")
	c.must(err)
	equal(t, "last ended session", last.ID, was.ID)
	// The next session has the same workspace, until delete.
	wantFields(t, c.exec(command("k3", sh("cat file"))), schemas.Result{Stdout: "one\n"})
	dir := c.session().Workspace
	c.must(os.Symlink(c.dir, filepath.Join(dir, "out")))
	c.must(errorOf(c.stop(schemas.StopRequest{Delete: true})))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("workspace after delete: error %v, want that it does not exist", err)
	}
	c.must(errorOf(os.Stat(filepath.Join(c.dir, "nats")))) // it removed no more than the workspace
}

func TestConcurrentStopsAreOneEnd(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) { cfg.StopGrace = 50 * time.Millisecond })
	// The end waits for the sandbox that is being created.
	_, held := w.provider.hold()
	call := c.send(command("k", sh("sleep 300")))
	c.awaitEvent(schemas.TypeSandboxCreating)
	stop := schemas.SessionControl{Tenant: schemas.DefaultTenant, Thread: "t", Stop: &schemas.StopRequest{Session: c.session().ID}}
	replies := make(chan schemas.SessionReply, 4)
	var all sync.WaitGroup
	for range cap(replies) {
		all.Go(func() { w.HandleSession(c.ctx, stop, func(r schemas.SessionReply) { replies <- r }) })
	}
	all.Wait() // all of them wait for the end
	close(held)
	for range cap(replies) {
		if r := <-replies; r.Error != nil || r.Session.Thread != "t" {
			t.Errorf("stop = %+v, error %v; want the session of thread t", r.Session, r.Error)
		}
	}
	equal(t, "success", c.end(call).Success, false)
	ends := slices.DeleteFunc(c.eventTypes("t"), func(e schemas.EventType) bool { return e != schemas.TypeSessionTerminated })
	equal(t, "number of session.terminated", len(ends), 1)
	if sb := w.provider.sandboxes(); len(sb) == 1 {
		<-sb[0].Done()
	}
}

func TestOwnsIsFenced(t *testing.T) {
	c, w := newRig(t)
	c.exec(command("k", sh(":")))
	c.must(w.Owns(c.ctx, "default", "t", 1))
	testkit.WantCode(t, w.Owns(c.ctx, "default", "t", 2), schemas.CodeLost)
	id := c.session().ID
	c.must(w.Amend(c.ctx, "default", "t", id, func(s *schemas.Session) { s.Version = "v7" }))
	wantFields(t, c.session(), schemas.Session{Version: "v7"})
	// Another owner's epoch. The worker itself writes nothing more.
	w.Sessions().Find("default", "t").Flush(c.ctx)
	s, rev, err := c.conn.Session(c.ctx, "default", "t")
	c.must(err)
	s.Epoch, s.Owner = 2, "w2"
	c.must(errorOf(c.conn.SaveSession(c.ctx, s, rev)))
	testkit.WantCode(t, w.Owns(c.ctx, "default", "t", 1), schemas.CodeLost)
	testkit.WantCode(t, w.Amend(c.ctx, "default", "t", id, func(*schemas.Session) {}), schemas.CodeLost)
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
	var repeated [threads]int // how often each thread was placed again
	var endsLate [threads]bool
	late := func(err error) bool { return errors.Is(err, schemas.ErrDeadlineExceeded) && ctx.Err() == nil } // of a busy cell: its caller asks again
	for i := range threads {
		all.Go(func() {
			thread := fmt.Sprint("t", i)
			_, err := c.place(schemas.PlaceRequest{Thread: thread})
			for late(err) {
				repeated[i]++
				_, err = c.place(schemas.PlaceRequest{Thread: thread})
			}
			if err != nil {
				t.Error(err)
				return
			}
			for k := range n {
				cmd := command(fmt.Sprint("k", k), schemas.Exec{Command: "true"})
				cmd.Thread = thread
				call, err := c.conn.Send(c.ctx, schemas.DefaultTenant, cmd)
				for late(err) {
					err = call.Send(c.ctx)
				}
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
			if _, err := c.conn.StopSession(c.ctx, schemas.DefaultTenant, thread, schemas.StopRequest{}); late(err) {
				endsLate[i] = true
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range threads {
		if endsLate[i] {
			c.await(func(ev *schemas.Event) bool {
				return ev.Thread == fmt.Sprint("t", i) && ev.Type == schemas.TypeSessionTerminated
			})
		}
		var got []schemas.EventType
		for _, typ := range c.eventTypes(fmt.Sprint("t", i)) {
			if typ == schemas.TypeSessionReused && repeated[i] > 0 { // by a place that was asked for again
				repeated[i]--
				continue
			}
			got = append(got, typ)
		}
		testkit.Equal(t, fmt.Sprint("events of t", i), got, wholeLife(schemas.TypeSessionCreated, schemas.TypeSessionTerminated))
	}
	left := 0
	c.must(c.conn.EachSession(c.ctx, func(*schemas.Session, uint64) error {
		left++
		return nil
	}))
	equal(t, "sessions that are left", left, 0)
}
