package processor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// soon makes a worker sweep often.
func soon(cfg *processor.Config) { cfg.SweepEvery = 20 * time.Millisecond }

// still keeps a worker from sweeping: what expires is for another one, or for the test, to find.
func still(cfg *processor.Config) { cfg.SweepEvery = time.Hour }

// hasty shortens the shutdown of a worker that cannot write its records.
func hasty(cfg *processor.Config) {
	cfg.StopGrace = 100 * time.Millisecond
	*cfg.Timeouts() = work.Timeouts{Kill: 100 * time.Millisecond}
}

func TestFencedWorkerKillsAndPublishesNothing(t *testing.T) {
	c, zombie := newRig(t)
	cmd := command("k", sh("echo on; exec sleep 300"))
	call := c.send(cmd)
	process := processOf(cmd)
	c.output(process, "on")
	started := c.awaitType(process, schemas.TypeProcessStarted)

	zombie.Fence()
	// Its process ends, and the end is not published.
	<-zombie.Runs().Ended()
	c.wantRecords(process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	v, answers := zombie.deliver(command("k2", sh(":")), true, 1)
	equal(t, "action of a durable command", v.Action, schemas.ActionRetry)
	equal(t, "answers", len(answers), 0)
	zombie.wantAnswer(command("k2", sh(":")), false, 1, schemas.ActionRetry, failed(schemas.CodeUnavailable))
	zombie.Publisher().Publish(c.ctx, zombie.Publisher().Event(schemas.TypeSessionExpired, publisher.About{Tenant: "default", Thread: "t"}, nil))

	// The next owner answers the callers that wait.
	c.lapse("w1")
	next := c.worker("w2", soon)
	r := c.end(call)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonLost, Worker: "w1", StdoutBytes: 3})
	equal(t, "the result has a log range", r.Log != nil, true)
	// The zombie cannot add a record, not even while it does not know that its lease is lost: this connection has none to check.
	_, err := c.conn.Append(c.ctx, zombie.Publisher().Event(schemas.TypeProcessExited, publisher.About{Tenant: "default", Thread: "t", Session: "", Process: process}, &schemas.Result{}), started.Seq)
	testkit.WantCode(t, err, schemas.CodeConflict)
	c.wantRecords(process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessLost)
	// The zombie is still subscribed; the new owner has the session.
	next.wantAnswer(command("k3", sh("echo two")), false, 1, schemas.ActionDone, schemas.Result{Stdout: "two\n", Worker: "w2", Epoch: 2})
	equal(t, "the fenced worker published an event", slices.Contains(c.eventTypes("t"), schemas.TypeSessionExpired), false)
}

// idleNow reports whether every accepted process has ended.
func (r *rig) idleNow() bool { return r.Runs().Len() == 0 }

func TestTakenLeaseFencesItsWorker(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.leases = 30 * time.Second // it is renewed, and found to be taken, after a third
	w := c.worker("w1")
	cmd := command("k", sh("echo on; exec sleep 300"))
	c.start(cmd, "on")
	// Another incarnation takes the lease, and renews it: the next renewal of the old one fails.
	taken := c.takeLease("w1")
	ctx, release := context.WithCancel(c.ctx)
	defer release()
	released := make(chan error, 1)
	go func() { released <- taken.Run(ctx, func(context.Context) {}) }()
	select {
	case <-w.done:
	case <-c.ctx.Done():
		t.Fatal("the worker still runs, want it to end")
	}
	testkit.WantCode(t, w.err, schemas.CodeLost)
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	if w.provider.sandboxes()[0] != nil {
		<-w.provider.sandboxes()[0].Done()
	}
	// The new incarnation recovers what the old one ran.
	release()
	c.must(<-released)
	c.leases = 0
	again := c.worker("w1")
	wantFields(t, c.result(c.awaitType(processOf(cmd), schemas.TypeProcessLost)), schemas.Result{Reason: schemas.ReasonLost})
	if got := again.log.of("command_lost"); len(got) != 1 || got[0]["command_id"] != processOf(cmd) || got[0]["session_id"] == "" {
		t.Fatalf("command_lost lines are %v, want one of %s with its session", got, processOf(cmd))
	}
	wantFields(t, c.exec(command("k2", sh("echo again"))), schemas.Result{Stdout: "again\n", Epoch: 2})
}

func TestWorkerReportsProcessesOfADeadWorkerAsLost(t *testing.T) {
	t.Parallel()
	c, dead := newRig(t, hasty)
	one, two := command("k1", sh("echo one; exec sleep 300")), command("k2", sh("echo two >&2; exec sleep 300"))
	first, second := c.send(one), c.send(two)
	c.output(processOf(one), "one")
	c.output(processOf(two), "two")
	c.awaitType(processOf(one), schemas.TypeProcessStarted)
	c.awaitType(processOf(two), schemas.TypeProcessStarted)
	ended := c.exec(command("k3", sh("echo three")))
	dead.die()
	c.worker("w2", soon)
	for _, call := range []*events.Call{first, second} {
		r := c.end(call)
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonLost, Error: coded(schemas.CodeLost), Worker: "w1"})
		equal(t, "output bytes", r.StdoutBytes+r.StderrBytes, 4)
	}
	// Recorded ends stay, and the dead worker is unregistered.
	c.wantRecords(ended.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	for {
		workers := c.workers()
		if len(workers) == 1 && workers[0].ID == "w2" {
			break
		}
		if c.ctx.Err() != nil {
			t.Fatalf("workers are %+v, want w2 alone", workers)
		}
	}
	// The thread continues on the other worker, and the lost key has the same answer.
	wantFields(t, c.exec(command("k4", sh("echo four"))), schemas.Result{Worker: "w2", Epoch: 2})
	wantFields(t, c.exec(one), schemas.Result{Reason: schemas.ReasonLost})
}

func TestNextOwnerAnswersKeysOfADeadWorker(t *testing.T) {
	c, dead := newRig(t, hasty)
	never, safe := command("never", sh("echo on; exec sleep 300")), sh("test -e ran || { touch ran; echo on; exec sleep 300; }")
	safe.Retry = schemas.RetrySafe
	again := command("safe", safe)
	for _, cmd := range []*schemas.Command{never, again} {
		c.start(cmd, "on")
	}
	dead.die()
	// The next worker does not sweep: the repeated command finds the loss.
	c.worker("w2", still)
	wantFields(t, c.exec(never), schemas.Result{Reason: schemas.ReasonLost})
	wantFields(t, c.exec(again), schemas.Result{Reason: schemas.ReasonExited, Worker: "w2", Epoch: 2})
	c.wantRecords(processOf(again), schemas.TypeProcessAccepted, schemas.TypeProcessStarted,
		schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

func TestThreadHasOneOwner(t *testing.T) {
	c := newCell(t)
	w1, w2 := c.worker("w1"), c.worker("w2")
	first := c.exec(command("k0", sh(":")))
	owner, other := w1, w2
	if first.Worker == "w2" {
		owner, other = w2, w1
	}
	v, _ := other.deliver(command("k1", sh(":")), true, 1)
	equal(t, "v.Action", v.Action, schemas.ActionForward)
	equal(t, "v.To", v.To, owner.Config().Worker)
	other.wantAnswer(command("k1", sh(":")), false, 1, schemas.ActionRetry, failed(schemas.CodeUnavailable))
	p := other.HandlePlace(c.ctx, "default", schemas.PlaceRequest{Thread: "t"})
	equal(t, "worker", p.Worker, owner.Config().Worker)
	equal(t, "error", p.Error, nil)
	// Of concurrent requests for a new thread, one wins.
	replies := make(chan schemas.PlaceReply, 2)
	for _, w := range []*rig{w1, w2} {
		go func() { replies <- w.HandlePlace(c.ctx, "default", schemas.PlaceRequest{Thread: "new"}) }()
	}
	if a, b := <-replies, <-replies; a.Worker == "" || a.Worker != b.Worker || a.Error != nil || b.Error != nil {
		t.Fatalf("placed by %q (error %v) and %q (error %v), want one owner", a.Worker, a.Error, b.Worker, b.Error)
	}
}
