package processor

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// soon makes a worker look for the dead often.
func soon(cfg *Config) { cfg.SweepEvery = 20 * time.Millisecond }

// hasty makes a worker that cannot write its records give up soon when it is stopped.
func hasty(cfg *Config) {
	cfg.StopGrace = 100 * time.Millisecond
	cfg.patience = patience{kill: 100 * time.Millisecond}
}

func TestAWorkerThatLostItsLeasePublishesNothingMoreAndKills(t *testing.T) {
	c := newCell(t)
	zombie := c.worker("w1")
	cmd := command("k", sh("echo on; exec sleep 300"))
	call := c.send(cmd)
	process := processOf(cmd)
	c.output(process, "on")
	started := c.awaitType(process, schemas.TypeProcessStarted)

	zombie.Fence()
	// Its process ends, and it tells nobody.
	zombie.work.Wait()
	c.wantRecords(process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	if v, answers := zombie.deliver(command("k2", sh(":")), true, 1); v.Action != schemas.ActionRetry || len(answers) != 0 {
		t.Fatalf("%v", v)
	}
	if v, answers := zombie.deliver(command("k2", sh(":")), false, 1); v.Action != schemas.ActionRetry || c.terminal(answers).Error.Code != schemas.CodeUnavailable {
		t.Fatalf("%v", v)
	}
	zombie.publish(c.ctx, zombie.event(schemas.TypeSessionExpired, "default", "t", "", "", nil))

	// Whoever takes over tells the end to whoever waits.
	c.lapse("w1")
	next := c.worker("w2", soon)
	if r := c.end(call); r.Reason != schemas.ReasonLost || r.Worker != "w1" || r.StdoutBytes != 3 || r.Log == nil {
		t.Fatalf("%+v", r)
	}
	// The record is closed to the zombie.
	_, err := zombie.conn.Append(c.ctx, zombie.event(schemas.TypeProcessExited, "default", "t", "", process, &schemas.Result{}), started.Seq)
	if !errors.Is(err, schemas.ErrConflict) {
		t.Fatalf("a zombie's record: %v", err)
	}
	c.wantRecords(process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessLost)
	// The zombie is still subscribed; the new owner has the session.
	v, answers := next.deliver(command("k3", sh("echo two")), false, 1)
	if r := c.terminal(answers); v.Action != schemas.ActionDone || r.Stdout != "two\n" || r.Worker != "w2" || r.Epoch != 2 {
		t.Fatalf("%+v", r)
	}
	if _, err := c.conn.ReadEvents(c.ctx, events.Filter{}, 1, func(ev *schemas.Event) error {
		if ev.Type == schemas.TypeSessionExpired {
			t.Error("the zombie published an event")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// idleNow says whether nothing is accepted that has not ended.
func (w *Worker) idleNow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.runs) == 0
}

func TestALeaseThatIsTakenFencesItsWorker(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	cmd := command("k", sh("echo on; exec sleep 300"))
	c.send(cmd)
	c.output(processOf(cmd), "on")
	// Another incarnation of the same id: its first renewal tells the old one.
	if _, err := c.conn.AcquireLease(c.ctx, "w1", "another"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.done:
	case <-c.ctx.Done():
		t.Fatal("the worker goes on")
	}
	if !errors.Is(w.err, schemas.ErrLost) {
		t.Fatal(w.err)
	}
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	if w.stage.sandboxes()[0] != nil {
		<-w.stage.sandboxes()[0].Done()
	}
	// The new incarnation recovers what the old one ran.
	again := c.worker("w1")
	if r := c.result(c.awaitType(processOf(cmd), schemas.TypeProcessLost)); r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v", r)
	}
	if got := again.log.of("command_lost"); len(got) != 1 || got[0]["command_id"] != processOf(cmd) || got[0]["session_id"] == "" {
		t.Fatalf("%v", got)
	}
	if r := c.exec(command("k2", sh("echo again"))); r.Stdout != "again\n" || r.Epoch != 2 {
		t.Fatalf("%+v %v", r, r.Error)
	}
}

func TestAnotherWorkerTellsTheLossOfADeadOnesProcesses(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
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
		if r := c.end(call); r.Reason != schemas.ReasonLost || r.Error.Code != schemas.CodeLost || r.Worker != "w1" || r.StdoutBytes+r.StderrBytes != 4 {
			t.Errorf("%+v", r)
		}
	}
	// What had ended stays as it was, and the dead worker is forgotten.
	c.wantRecords(ended.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	for {
		workers, err := c.conn.Workers(c.ctx)
		c.must(err)
		if len(workers) == 1 && workers[0].ID == "w2" {
			break
		}
		if c.ctx.Err() != nil {
			t.Fatalf("%+v", workers)
		}
	}
	// Its thread goes on elsewhere, and the lost key answers the same.
	if r := c.exec(command("k4", sh("echo four"))); r.Worker != "w2" || r.Epoch != 2 {
		t.Fatalf("%+v", r)
	}
	if r := c.exec(one); r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v", r)
	}
}

func TestAKeyWhoseWorkerDiedIsTakenOverByItsNextOwner(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	never, safe := command("never", sh("echo on; exec sleep 300")), sh("test -e ran || { touch ran; echo on; exec sleep 300; }")
	safe.Retry = schemas.RetrySafe
	again := command("safe", safe)
	for _, cmd := range []*schemas.Command{never, again} {
		c.send(cmd)
		c.output(processOf(cmd), "on")
		c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	}
	dead.die()
	// The next worker does not sweep: the command itself finds what became of it.
	c.worker("w2", func(cfg *Config) { cfg.SweepEvery = time.Hour })
	if r := c.exec(never); r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v", r)
	}
	if r := c.exec(again); r.Reason != schemas.ReasonExited || r.Worker != "w2" || r.Epoch != 2 {
		t.Fatalf("%+v", r)
	}
	c.wantRecords(processOf(again), schemas.TypeProcessAccepted, schemas.TypeProcessStarted,
		schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

func TestTwoWorkersShareNoThread(t *testing.T) {
	c := newCell(t)
	w1, w2 := c.worker("w1"), c.worker("w2")
	first := c.exec(command("k0", sh(":")))
	owner, other := w1, w2
	if first.Worker == "w2" {
		owner, other = w2, w1
	}
	v, _ := other.deliver(command("k1", sh(":")), true, 1)
	if v.Action != schemas.ActionForward || v.To != owner.cfg.Worker {
		t.Fatalf("%+v", v)
	}
	v, answers := other.deliver(command("k1", sh(":")), false, 1)
	if r := c.terminal(answers); v.Action != schemas.ActionRetry || r.Error.Code != schemas.CodeUnavailable {
		t.Fatalf("%+v %+v", v, r)
	}
	if p := other.HandlePlace(c.ctx, "default", schemas.PlaceRequest{Thread: "t"}); p.Worker != owner.cfg.Worker || p.Error != nil {
		t.Fatalf("%+v", p)
	}
	// Both at once for a thread that is new: one has it.
	replies := make(chan schemas.PlaceReply, 2)
	for _, w := range []*rig{w1, w2} {
		go func() { replies <- w.HandlePlace(c.ctx, "default", schemas.PlaceRequest{Thread: "new"}) }()
	}
	if a, b := <-replies, <-replies; a.Worker == "" || a.Worker != b.Worker || a.Error != nil || b.Error != nil {
		t.Fatalf("%+v %+v", a, b)
	}
}
