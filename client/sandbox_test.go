package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// wantIs ends the test unless err is target and has this code. what names the operation.
func (d *caller) wantIs(what string, err, target error, code schemas.Code) {
	d.t.Helper()
	if !errors.Is(err, target) {
		d.t.Fatalf("%s: error = %v, want one that is %q", what, err, target)
	}
	d.wantCode(what, err, code)
}

// waitForEnds waits until so many sessions of a thread have ended in this way.
func (d *caller) waitForEnds(thread string, typ schemas.EventType, n int) {
	d.t.Helper()
	err := d.Events(d.ctx, client.EventQuery{Thread: thread, Follow: true}, func(ev *schemas.Event) error {
		if ev.Type == typ {
			n--
		}
		if n == 0 {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		d.t.Fatalf("wait for %s of thread %s: %v", typ, thread, err)
	}
}

// endSandbox has a sandbox end by itself.
func (d *caller) endSandbox(s *client.Sandbox) {
	d.t.Helper()
	_, err := s.Exec(d.ctx, client.Request{Command: "sh", Args: []string{"-c", "kill -9 $PPID; sleep 60"}}) // its supervisor
	d.wantCode("a command whose sandbox ends", err, schemas.CodeLost)
}

func echo(text string) client.Request { return client.Request{Command: "echo", Args: []string{text}} }

func TestSandboxGoesThroughItsStates(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Tags: map[string]string{"team": "blue"}})
	d.must(err)
	if s.Thread() == "" || s.Session().ID() == "" || s.Status() == "" {
		t.Fatalf("a sandbox that was run has thread %q, session %q, status %q", s.Thread(), s.Session().ID(), s.Status())
	}
	d.must(s.Wait(d.ctx))
	d.equal("status", s.Status(), schemas.SandboxRunning)
	fresh, err := s.GetStatus(d.ctx)
	d.must(err)
	d.equal("fresh status", fresh, schemas.SandboxRunning)
	r, err := s.Exec(d.ctx, echo("hello"))
	d.must(err)
	d.equal("standard output", r.Stdout, "hello\n")
	d.wantCode("a sandbox that goes on", s.WaitUntilComplete(d.ctx, 50*time.Millisecond), schemas.CodeDeadlineExceeded)

	// Another handle, by the thread, is attached.
	other, err := client.Attach(d.ctx, d.Client, s.Thread())
	d.must(err)
	d.equal("status of the attached handle", other.Status(), schemas.SandboxRunning)
	d.must(other.Close())
	d.must(s.Stop(d.ctx, client.StopGrace(time.Millisecond)))
	d.must(s.Stop(d.ctx))
	d.equal("status after the stop", s.Status(), schemas.SandboxTerminated)
	for what, err := range map[string]error{
		"exec": errorOf(s.Exec(d.ctx, echo(""))), "start": s.Start(d.ctx), "wait": s.Wait(d.ctx), "files": errorOf(s.Files().Stat(d.ctx, ".")),
		"process": errorOf(s.StartProcess(d.ctx, echo(""))), "complete": s.WaitUntilComplete(d.ctx, 0),
	} {
		d.wantIs(what+" after the stop", err, client.ErrSandboxNotRunning, schemas.CodeSessionExpired)
	}
	next, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: s.Thread()}) // is not the handles'
	d.must(err)
	fresh, err = other.GetStatus(d.ctx)
	d.must(err)
	d.equal("fresh status of the attached handle", fresh, schemas.SandboxTerminated)
	d.wantIs("exec of the attached handle", errorOf(other.Exec(d.ctx, echo(""))), client.ErrSandboxTerminated, schemas.CodeSessionExpired)
	d.must(other.Stop(d.ctx)) // it has ended
	d.must(errorOf(next.Info(d.ctx)))
	d.must(errorOf(next.Stop(d.ctx)))
	d.wantCode("attach to a thread without a session", errorOf(client.Attach(d.ctx, d.Client, s.Thread())), schemas.CodeNotFound)
}

func TestSandboxMakesNoRequestBeforeItsUse(t *testing.T) {
	d := newCaller(t, "w1")
	away, err := d.cell.conn()
	d.must(err)
	c, err := client.New(away)
	d.must(err)
	away.Close()
	group := c.Sandboxes(client.SessionRequest{})
	s := group.Sandbox(client.SessionRequest{Thread: "t"})
	s.Files()
	status, err := s.GetStatus(d.ctx)
	d.must(err)
	d.equal("states", []schemas.SandboxState{s.Status(), status}, []schemas.SandboxState{"", ""})
	d.wantCode("the first use, without a connection", errorOf(s.Exec(d.ctx, echo(""))), schemas.CodeUnavailable)
	d.must(s.Stop(d.ctx))
	d.must(s.Delete(d.ctx))
	d.must(group.Close())
	d.wantIs("exec after the stop", errorOf(s.Exec(d.ctx, echo(""))), client.ErrSandboxNotRunning, schemas.CodeSessionExpired)
}

func TestFirstUseStartsOneSandbox(t *testing.T) {
	d := newCaller(t, "w1", "w2")
	group := d.Sandboxes(client.SessionRequest{Tags: map[string]string{"job": "7"}, User: "ann"})
	uses := map[string]func(*client.Sandbox) error{
		"exec":  func(s *client.Sandbox) error { return errorOf(s.Exec(d.ctx, echo(""))) },
		"files": func(s *client.Sandbox) error { return errorOf(s.Files().WriteFile(d.ctx, "f", []byte("x"))) },
		"wait":  func(s *client.Sandbox) error { return s.Wait(d.ctx) },
		"start": func(s *client.Sandbox) error { return s.Start(d.ctx) },
	}
	for name, use := range uses {
		s := group.Sandbox(client.SessionRequest{Thread: name, Tags: map[string]string{"use": name}})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := use(s); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		d.must(s.Wait(d.ctx))
		var created, made int
		d.must(d.Events(d.ctx, client.EventQuery{Thread: name}, func(ev *schemas.Event) error {
			switch ev.Type {
			case schemas.TypeSessionCreated:
				created++
			case schemas.TypeSandboxPending:
				made++
			}
			return nil
		}))
		d.equal("sessions and sandboxes of "+name, []int{created, made}, []int{1, 1})
	}
	for tags, want := range map[string][]string{"": {"exec", "files", "start", "wait"}, "exec": {"exec"}, "none": nil} {
		q := client.SessionQuery{}
		if tags != "" {
			q.Tags = map[string]string{"use": tags}
		}
		list, err := group.List(d.ctx, q)
		d.must(err)
		var got []string
		for _, s := range list {
			got = append(got, s.Thread())
		}
		slices.Sort(got)
		d.equal(fmt.Sprintf("listed for %q", tags), got, want)
	}
	session, err := d.SessionInfo(d.ctx, "exec")
	d.must(err)
	d.equal("user", session.User, "ann")
	d.must(group.Close())
	list, err := d.Sessions(d.ctx, client.SessionQuery{})
	d.must(err)
	d.equal("sessions after Close", len(list), 0)
}

// spoil keeps the sandboxes of a thread from being created, until the result is called.
func (d *caller) spoil(thread string) (mend func()) {
	d.t.Helper()
	path := filepath.Join(d.cell.dir, "workspaces", schemas.DefaultTenant, thread)
	d.must(os.MkdirAll(filepath.Dir(path), 0o700))
	d.must(os.WriteFile(path, nil, 0o600))
	return func() { d.must(os.Remove(path)) }
}

// Once a wait has returned, lists show the sandbox as running too.
func TestRunningSandboxIsListedAsRunning(t *testing.T) {
	d := newCaller(t, "w1")
	for i := range 10 {
		s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: fmt.Sprint("t", i)})
		d.must(err)
		d.must(s.Wait(d.ctx))
		info, err := d.SessionInfo(d.ctx, s.Thread())
		d.must(err)
		d.equal("state in the list", info.State, schemas.SandboxRunning)
		d.must(s.Close())
	}
}

func TestFailedSandboxIsAnErrorUntilItIsStartedAgain(t *testing.T) {
	d := newCaller(t, "w1")
	mend := d.spoil("t")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "t"})
	d.must(err)
	failed := s.Wait(d.ctx)
	if !errors.Is(failed, client.ErrSandboxFailed) {
		t.Fatalf("wait for a sandbox that fails: %v", failed)
	}
	status, err := s.GetStatus(d.ctx)
	d.must(err)
	d.equal("status", status, schemas.SandboxFailed)
	mend()
	code := schemas.CodeOf(failed)
	d.wantIs("exec", errorOf(s.Exec(d.ctx, echo(""))), client.ErrSandboxFailed, code)
	d.wantIs("wait until complete", s.WaitUntilComplete(d.ctx, 0), client.ErrSandboxFailed, code)
	d.must(s.Start(d.ctx))
	d.must(s.Wait(d.ctx))
	d.must(errorOf(s.Exec(d.ctx, echo(""))))
	d.must(s.Close())
}

func TestSandboxThatEndsByItselfHasCompleted(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "t"})
	d.must(err)
	d.must(s.Wait(d.ctx))
	other, err := client.Attach(d.ctx, d.Client, "t")
	d.must(err)
	completed := make(chan error, 1)
	go func() { completed <- s.WaitUntilComplete(d.ctx, 0) }()
	d.endSandbox(s)
	d.must(<-completed)
	d.equal("status", s.Status(), schemas.SandboxCompleted)
	d.equal("status as last seen", other.Status(), schemas.SandboxRunning)
	d.must(other.Wait(d.ctx)) // it starts the next one
	status, err := s.GetStatus(d.ctx)
	d.must(err)
	d.equal("status of the next sandbox", status, schemas.SandboxRunning)
	r, err := s.Exec(d.ctx, echo("again"))
	d.must(err)
	d.equal("standard output in the next sandbox", r.Stdout, "again\n")
	d.must(s.Wait(d.ctx))
	d.equal("status of the next sandbox", s.Status(), schemas.SandboxRunning)
}

// A wait for the end of a sandbox that has ended by then, whether the handle knows or not, starts none: it would wait for the end of that.
func TestEndBeforeItIsWaitedForIsNotMissed(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "t"})
	d.must(err)
	d.must(s.Wait(d.ctx))
	d.endSandbox(s)
	d.waitForEnds("t", schemas.TypeSandboxCompleted, 1)
	d.equal("status as last seen", s.Status(), schemas.SandboxRunning)
	other, err := client.Attach(d.ctx, d.Client, "t")
	d.must(err)
	d.equal("status of the attached handle", other.Status(), schemas.SandboxCompleted)
	for range 2 {
		d.must(s.WaitUntilComplete(d.ctx, 0))
		d.equal("status", s.Status(), schemas.SandboxCompleted)
		d.must(other.WaitUntilComplete(d.ctx, 0))
	}
	status, err := s.GetStatus(d.ctx)
	d.must(err)
	d.equal("fresh status", status, schemas.SandboxCompleted)

	d.must(s.Wait(d.ctx)) // it starts the next one, and that ends before the one after it
	d.endSandbox(other)
	d.waitForEnds("t", schemas.TypeSandboxCompleted, 2)
	d.must(other.Wait(d.ctx))
	d.must(s.WaitUntilComplete(d.ctx, 0))
	d.wantCode("the one after it", s.WaitUntilComplete(d.ctx, 50*time.Millisecond), schemas.CodeDeadlineExceeded)
}

func TestExpiredSessionIsMadeAnewOnce(t *testing.T) {
	t.Parallel()
	d := newCaller(t, "w1")
	ann := client.SessionRequest{User: "ann"}
	group, once := d.Sandboxes(ann), d.Sandboxes(ann, client.WithoutRenewal())
	var all []*client.Sandbox
	for i := range 6 {
		g := group
		if i == 5 {
			g = once
		}
		s, err := g.Run(d.ctx, client.SessionRequest{Thread: fmt.Sprint("t", i)})
		d.must(err)
		d.must(s.Wait(d.ctx))
		d.must(errorOf(s.Renew(d.ctx, time.Millisecond))) // this session expires; the next one has the default
		all = append(all, s)
	}
	old := make([]string, len(all))
	for i, s := range all {
		old[i] = s.Session().ID()
		d.waitForEnds(s.Thread(), schemas.TypeSessionExpired, 1)
	}
	calls := 0
	req := echo("hello")
	req.OnComplete, req.OnError = func(*schemas.Result) { calls++ }, func(error) { calls += 100 }
	req.Stdin = strings.NewReader("in")
	r, err := all[0].Exec(d.ctx, req)
	d.must(err)
	d.equal("standard output and calls", []string{r.Stdout, fmt.Sprint(calls)}, []string{"hello\n", "1"})
	d.must(errorOf(all[1].Files().WriteFile(d.ctx, "f", []byte("x"))))
	x, err := all[2].ExecStream(d.ctx, echo("streamed"))
	d.must(err)
	for e, err := range x.Events(d.ctx) {
		d.must(err)
		if e.Result != nil {
			d.equal("exit code of the stream", e.Result.ExitCode, 0)
		}
	}
	x.Close()
	p, err := all[3].StartProcess(d.ctx, echo(""))
	d.must(err)
	d.must(errorOf(p.Wait(d.ctx)))
	d.must(all[4].Start(d.ctx))
	for i, s := range all[:5] {
		if s.Session().ID() == old[i] {
			t.Errorf("thread t%d still has the session that has expired", i)
		}
	}
	info, err := d.SessionInfo(d.ctx, "t0")
	d.must(err)
	d.equal("user of the new session", info.User, "ann")
	d.wantIs("exec without renewal", errorOf(all[5].Exec(d.ctx, echo(""))), client.ErrSessionExpired, schemas.CodeSessionExpired)
	d.must(group.Close())
	d.must(once.Close())
}

func TestCloseStopsWhatTheHandleStarted(t *testing.T) {
	d := newCaller(t, "w1")
	session, _, err := d.CreateSession(d.ctx, client.SessionRequest{Thread: "kept"})
	d.must(err)
	deferred := session.Sandbox()
	d.must(errorOf(deferred.Exec(d.ctx, echo(""))))
	d.must(deferred.Close())
	joined, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "kept"})
	d.must(err)
	d.must(joined.Close())
	d.must(errorOf(session.Info(d.ctx))) // neither has created it

	mine := errors.New("mine")
	work := func() (err error) {
		s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "u"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		return mine
	}
	if err := work(); !errors.Is(err, mine) {
		t.Fatalf("error = %v, want the caller's", err)
	}
	d.wantCode("the session of a closed handle", errorOf(d.Session(d.ctx, "u")), schemas.CodeNotFound)

	// Also while it starts.
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "v"})
	d.must(err)
	d.must(s.Close())
	d.wantCode("the session of a handle closed at its start", errorOf(d.Session(d.ctx, "v")), schemas.CodeNotFound)
}

func TestDeleteRemovesTheWorkspaceAlsoAfterAStop(t *testing.T) {
	d := newCaller(t, "w1")
	for _, stopFirst := range []bool{false, true} {
		s, err := client.Run(d.ctx, d.Client, client.SessionRequest{})
		d.must(err)
		d.must(errorOf(s.Files().WriteFile(d.ctx, "f", []byte("x"))))
		folder := filepath.Join(d.cell.dir, "workspaces", schemas.DefaultTenant, s.Thread())
		if stopFirst {
			d.must(s.Stop(d.ctx))
			if _, err := os.Stat(folder); err != nil {
				t.Errorf("the workspace of a stopped sandbox: %v", err)
			}
		}
		d.must(s.Delete(d.ctx))
		d.must(s.Delete(d.ctx))
		if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("stopped first %v: the workspace is still there (%v)", stopFirst, err)
		}
	}
}

func TestWaitForSomeOfSeveralSandboxes(t *testing.T) {
	d := newCaller(t, "w1")
	d.spoil("bad")
	group := d.Sandboxes(client.SessionRequest{})
	good, bad := group.Sandbox(client.SessionRequest{}), group.Sandbox(client.SessionRequest{Thread: "bad"})
	done, pending := client.Wait(d.ctx, 0, good, bad)
	d.equal("done and pending", []int{len(done), len(pending)}, []int{2, 0})
	d.must(good.Wait(d.ctx))
	if err := bad.Wait(d.ctx); !errors.Is(err, client.ErrSandboxFailed) {
		t.Errorf("wait for the one that failed: %v", err)
	}
	p, err := good.StartProcess(d.ctx, client.Request{Command: "sleep", Args: []string{"300"}})
	d.must(err)
	mixedDone, mixedPending := client.Wait[client.Waiter](d.ctx, 1, p, good)
	if !slices.Equal(mixedDone, []client.Waiter{good}) || !slices.Equal(mixedPending, []client.Waiter{p}) {
		t.Errorf("of a process and a sandbox, %v are done and %v pending", mixedDone, mixedPending)
	}
	canceled, cancel := context.WithCancel(d.ctx)
	cancel()
	done, pending = client.Wait(canceled, 0, group.Sandbox(client.SessionRequest{}))
	d.equal("done and pending of a canceled wait", []int{len(done), len(pending)}, []int{0, 1})
	d.must(group.Close())
}
