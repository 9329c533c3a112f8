package processor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// sendAs sends a command of a tenant, in a thread of this name.
func (c *cell) sendAs(tenant, thread, script string) *events.Call {
	c.t.Helper()
	cmd := command(script, sh(script))
	cmd.Thread = thread
	call, err := c.conn.Send(c.ctx, tenant, cmd)
	c.must(err)
	c.t.Cleanup(call.Close)
	return call
}

// Issue 14, 4: a tenant that takes all places of a worker that it can get leaves one to another tenant, and what it has queued before takes
// no place that another tenant waits for.
func TestTenantLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, func(cfg *processor.Config) { cfg.MaxProcesses = 9 })
	const share = 8
	var held []*events.Call
	for i := range share {
		held = append(held, c.sendAs("a", fmt.Sprint("t", i), "exec sleep 300"))
		accepted, err := held[i].Next(c.ctx)
		c.must(err)
		equal(t, "event", accepted.Type, schemas.TypeProcessAccepted)
	}
	equal(t, "room of tenant a", w.RoomFor("a", ""), 0)
	more := c.sendAs("a", "more", "echo a")
	equal(t, "a command beyond the share waits", more.Queued(), true)
	// The same on the direct path, and for a thread that the worker owns.
	d := schemas.Delivery{Tenant: "a", Thread: "t0", Op: schemas.OpExec, Attempt: 1}
	cmd := command("k2", sh(":"))
	cmd.Thread = d.Thread
	d.SetCommand(cmd)
	var answers chan *schemas.Event
	d.Inbox, answers = w.inbox()
	w.HandleCommand(c.ctx, d)
	refused := c.terminal(answers)
	wantFields(t, refused, failed(schemas.CodePoolExhausted))
	wantMessage(t, refused.Error, "tenant a runs 8 processes on worker w1 already, its share of 9")

	b := c.sendAs("b", "t", "exec sleep 300")
	equal(t, "a command of tenant b waits", b.Queued(), false)
	third := c.sendAs("c", "t", "echo c")
	equal(t, "a command for a full worker waits", third.Queued(), true)
	c.must(w.control(held[0].Process(), schemas.Control{Tenant: "a", Thread: "t0", Kill: &schemas.KillRequest{}}))
	wantFields(t, c.end(third), schemas.Result{Stdout: "c\n"})
	equal(t, "the older command of tenant a waits still", more.Queued(), true)
	c.must(w.control(held[1].Process(), schemas.Control{Tenant: "a", Thread: "t1", Kill: &schemas.KillRequest{}}))
	wantFields(t, c.end(more), schemas.Result{Stdout: "a\n"})
}

// Issue 14, 4: a tenant that has as many sandboxes as it may have gets no other one, whatever runs in them; another tenant does. A queued
// command says why it waits, and runs when a sandbox ends.
func TestTenantLeavesSandboxesToOthers(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, func(cfg *processor.Config) {
		cfg.Quotas = processor.Quotas{MaxSandboxes: 9, TenantMemoryBytes: 2 << 30} // four of 512 MiB
	})
	for i := range 4 {
		wantFields(t, c.end(c.sendAs("a", fmt.Sprint("t", i), ":")), schemas.Result{Success: true})
	}
	equal(t, "room of a thread with a sandbox", w.RoomFor("a", "t0") > 1, true)
	wantFields(t, c.end(c.sendAs("a", "t0", "echo again")), schemas.Result{Stdout: "again\n"})

	more := c.sendAs("a", "more", "echo more")
	equal(t, "a command beyond the quota waits", more.Queued(), true)
	waiting, err := more.Next(c.ctx)
	c.must(err)
	equal(t, "event", waiting.Type, schemas.TypeCommandWaiting)
	var why schemas.Error
	c.must(waiting.Decode(&why))
	equal(t, "code", why.Code, schemas.CodeLimitExceeded)
	wantMessage(t, &why, "the sandboxes of tenant a on worker w1 may use 2147483648 bytes of memory, one more may use 536870912, and its quota is 2147483648")
	equal(t, "room of the thread", w.RoomFor("a", "more"), 0)
	_, err = c.conn.Place(c.ctx, "a", schemas.PlaceRequest{Thread: "started", Start: true})
	equal(t, "code of a session with its sandbox", schemas.CodeOf(err), schemas.CodeLimitExceeded)

	wantFields(t, c.end(c.sendAs("b", "t", "echo b")), schemas.Result{Stdout: "b\n"})
	_, err = c.conn.StopSession(c.ctx, "a", "t1", schemas.StopRequest{})
	c.must(err)
	wantFields(t, c.end(more), schemas.Result{Stdout: "more\n"})
}

// oneSandbox is a quota of one sandbox for each tenant.
func oneSandbox(cfg *processor.Config) { cfg.Quotas = processor.Quotas{TenantSandboxes: 1} }

// Issue 14, 4: a thread for which a worker has no sandbox goes to a worker that has one, on both paths. One without a sandbox may begin
// anywhere.
func TestThreadGoesWhereItsTenantHasRoom(t *testing.T) {
	t.Parallel()
	c, _ := newRig(t, oneSandbox)
	wantFields(t, c.end(c.sendAs("a", "t0", ":")), schemas.Result{Success: true, Worker: "w1"})
	waiting := c.sendAs("a", "t1", ":")
	equal(t, "a command waits", waiting.Queued(), true)
	p, err := c.conn.Place(c.ctx, "a", schemas.PlaceRequest{Thread: "session"})
	c.must(err)
	equal(t, "worker of the session", p.Worker, "w1")
	// Its owner has no room, and no other worker may take it.
	wantFields(t, c.end(c.sendAs("a", "session", ":")), failed(schemas.CodeLimitExceeded))

	c.worker("w2")
	wantFields(t, c.end(waiting), schemas.Result{Success: true, Worker: "w2"})
	for i := range 8 { // place requests reach either worker
		call := c.sendAs("a", fmt.Sprint("u", i), ":")
		equal(t, "queued with room elsewhere", call.Queued(), false)
		wantFields(t, c.end(call), schemas.Result{Success: true, Worker: "w2"})
	}
	c.must(errorOf(c.conn.StopSession(c.ctx, "a", "t0", schemas.StopRequest{})))
	wantFields(t, c.end(c.sendAs("a", "session", ":")), schemas.Result{Success: true, Worker: "w1"})
}

// Issue 14, 4: a tenant with as many sessions as it may have begins no other one, even without a sandbox; another tenant does. A queued command
// of a further thread waits until a session ends, and those that there are go on.
func TestTenantLeavesSessionsToOthers(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, func(cfg *processor.Config) { cfg.Quotas = processor.Quotas{TenantSessions: 3} })
	begin := func(tenant, thread string) error {
		_, err := c.conn.Place(c.ctx, tenant, schemas.PlaceRequest{Thread: thread})
		return err
	}
	for i := range 3 {
		c.must(begin("a", fmt.Sprint("t", i)))
		c.must(begin("a", fmt.Sprint("t", i))) // it is there
	}
	c.must(w.Register(c.ctx))
	equal(t, "sessions", c.workers()[0].Sessions, 3)
	err := begin("a", "more")
	equal(t, "code", schemas.CodeOf(err), schemas.CodeLimitExceeded)
	wantMessage(t, schemas.AsError(err), "tenant a has used up its quota of sessions on worker w1, 3 of 3: stop sessions that are not needed")
	more := c.sendAs("a", "more", "echo more")
	equal(t, "a command of a further thread waits", more.Queued(), true)
	wantFields(t, c.end(c.sendAs("a", "t0", "echo t0")), schemas.Result{Stdout: "t0\n"})
	c.must(begin("b", "t"))
	c.must(errorOf(c.conn.StopSession(c.ctx, "a", "t1", schemas.StopRequest{})))
	wantFields(t, c.end(more), schemas.Result{Stdout: "more\n"})
}

// A status counts what a worker runs now, of every tenant, however long ago its entry was written.
func TestStatusCountsWhatRunsNow(t *testing.T) {
	t.Parallel()
	c, w := newRig(t)
	wantRunning := func(ofTenant, ofAll int) {
		t.Helper()
		s, err := c.conn.Status(c.ctx, "a")
		c.must(err)
		equal(t, "processes of the tenant, of all", [2]int{s.Processes, s.Workers[0].Processes}, [2]int{ofTenant, ofAll})
	}
	accepted := func(tenant string) *events.Call {
		call := c.sendAs(tenant, "t", "exec sleep 300")
		_, err := call.Next(c.ctx)
		c.must(err)
		return call
	}
	wantRunning(0, 0)
	first := accepted("a")
	c.must(w.Register(c.ctx))
	second := accepted("b")
	wantRunning(1, 2)
	for _, call := range []*events.Call{first, second} {
		c.must(c.conn.Kill(c.ctx, call.Ref(), schemas.KillRequest{}))
		c.end(call)
	}
	wantRunning(0, 0)
}

// Issue 14, 4: a parked session has no sandbox, and another thread of the tenant may have its place. Without a sandbox a failed start holds
// none either.
func TestPlacesOfSandboxesAreGivenBack(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, soon, oneSandbox, with(&schemas.Template{Name: "default", Session: schemas.TemplateSession{ParkAfterMS: 20}}))
	wantFields(t, c.end(c.sendAs("a", "t0", ":")), schemas.Result{Success: true})
	wantFields(t, c.end(c.sendAs("a", "t1", ":")), schemas.Result{Success: true})
	<-w.provider.sandboxes()[1].Done()

	create := w.provider.create
	w.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "no sandbox today")
	}
	for i := range 3 {
		wantFields(t, c.end(c.sendAs("b", fmt.Sprint("f", i), ":")), failed(schemas.CodeUnavailable))
	}
	w.provider.create = create
	wantFields(t, c.end(c.sendAs("b", "t", ":")), schemas.Result{Success: true})
}

// Issue 14, 4: what runs on after a restart of the worker keeps its sandbox, and counts.
func TestAdoptedSandboxesCount(t *testing.T) {
	t.Parallel()
	c, dead := newRig(t, hasty, func(cfg *processor.Config) { cfg.Quotas = processor.Quotas{TenantSandboxes: 2} })
	for i := range 2 {
		c.awaitType(c.send(inThread(i, "exec sleep 300")).Process(), schemas.TypeProcessStarted)
	}
	dead.crash()
	w := dead.again(oneSandbox)
	w.awaitLine("process_resumed")
	c.must(w.Register(c.ctx))
	equal(t, "sessions", c.workers()[0].Sessions, 2)
	equal(t, "sandboxes", c.workers()[0].Sandboxes, 2)
	equal(t, "room of another thread", w.RoomFor(schemas.DefaultTenant, "new"), 0)
	equal(t, "room of a thread that goes on", w.RoomFor(schemas.DefaultTenant, inThread(0, "").Thread) > 0, true)
}
