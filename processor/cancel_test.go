package processor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/schemas"
)

// touching is a command that leaves a file when it runs. ran reports whether one did.
func (c *cell) touching(thread, key string) (cmd *schemas.Command, ran func() bool) {
	file := filepath.Join(c.dir, thread+key)
	cmd = command(key, sh("echo >"+file))
	cmd.Thread = thread
	return cmd, func() bool {
		_, err := os.Stat(file)
		return err == nil
	}
}

// wantCanceled fails the test unless a call ends as canceled, alone on record, and its command did not run.
func (c *cell) wantCanceled(call *events.Call, ran func() bool) {
	c.t.Helper()
	wantFields(c.t, c.end(call), schemas.Result{Reason: schemas.ReasonRejected, ExitCode: schemas.ExitSluiceFailed, Error: coded(schemas.CodeCanceled)})
	c.wantRecords(call.Process(), schemas.TypeProcessRejected)
	equal(c.t, "ran", ran(), false)
}

// awaitEmptyQueue waits until CMD is empty.
func (c *cell) awaitEmptyQueue() {
	c.t.Helper()
	for {
		s, err := c.conn.Status(c.ctx, schemas.DefaultTenant)
		c.must(err)
		if s.Streams[0].Messages == 0 { // CMD
			return
		}
	}
}

// Promises 8: a command is canceled while no worker lives. It does not run when one starts, nor when it is sent again.
func TestCanceledCommandDoesNotRunWhenAWorkerStarts(t *testing.T) {
	c := newCell(t)
	cmd, ran := c.touching("t", "k")
	next, nextRan := c.touching("t", "next")
	call, after := c.queue(cmd), c.queue(next)
	c.must(call.Cancel(c.ctx))
	c.worker("w1")
	c.wantCanceled(call, ran)
	wantFields(t, c.end(after), schemas.Result{Success: true})
	equal(t, "the next one ran", nextRan(), true)
	c.wantCanceled(c.send(cmd), ran)
	c.awaitEmptyQueue()
}

// Promises 8: the command waits for room.
func TestWaitingCommandIsCanceled(t *testing.T) {
	c := newCell(t)
	long := c.queue(command("long", sh("exec sleep 300")))
	cmd, ran := c.touching("t", "k") // in the same thread: it comes second
	full := c.queue(cmd)
	one := func(cfg *processor.Config) { cfg.MaxProcesses = 1 }
	c.worker("w1", one)
	c.awaitType(long.Process(), schemas.TypeProcessStarted)
	c.must(full.Cancel(c.ctx))
	c.wantCanceled(full, ran)
	c.must(c.conn.Kill(c.ctx, long.Ref(), schemas.KillRequest{}))
	c.end(long)
}

// Promises 8: the same while it waits for a worker that serves it. Its thread goes on.
func TestUnservedCommandIsCanceled(t *testing.T) {
	c := newCell(t)
	cmd, ran := c.touching("t", "k")
	cmd.Provider = "other"
	call, next := c.queue(cmd), c.queue(command("next", sh(":")))
	c.worker("w1")
	ev, err := call.Next(c.ctx)
	c.must(err)
	equal(t, "event", ev.Type, schemas.TypeCommandWaiting)
	c.must(call.Cancel(c.ctx))
	c.wantCanceled(call, ran)
	wantFields(t, c.end(next), schemas.Result{Success: true})
	c.awaitEmptyQueue()
}

// Promises 8: the same for a thread whose session no live worker serves.
func TestUnservedSessionKeepsNoCanceledCommand(t *testing.T) {
	c := newCell(t)
	w := c.worker("w2", func(cfg *processor.Config) { cfg.Providers["other"] = cfg.Providers["local"] })
	wantFields(t, w.HandlePlace(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "t", Provider: "other"}), schemas.PlaceReply{Worker: "w2"})
	w.stop()
	cmd, ran := c.touching("t", "k")
	call := c.queue(cmd)
	c.worker("w1")
	ev, err := call.Next(c.ctx)
	c.must(err)
	equal(t, "event", ev.Type, schemas.TypeCommandWaiting)
	c.must(call.Cancel(c.ctx))
	c.wantCanceled(call, ran)
	c.awaitEmptyQueue()
}

// Promises 8: the dispatcher that holds the command is killed before the cancel.
func TestCancelOutlivesTheDispatcher(t *testing.T) {
	c := newCell(t)
	cmd, ran := c.touching("t", "k")
	cmd.Provider = "other"
	call := c.queue(cmd)
	w := c.worker("w1", hasty)
	_, err := call.Next(c.ctx) // it waits there
	c.must(err)
	w.conn.Close()
	c.must(call.Cancel(c.ctx))
	c.worker("w1", func(cfg *processor.Config) { cfg.Providers["other"] = cfg.Providers["local"] })
	c.wantCanceled(call, ran)
	c.awaitEmptyQueue()
}

// Promises 8: a command that was accepted is killed, also by a cancel that names its process alone.
func TestCancelKillsWhatRuns(t *testing.T) {
	c, _ := newRig(t)
	for i, cancel := range []func(*events.Call) error{
		func(call *events.Call) error { return call.Cancel(c.ctx) },
		func(call *events.Call) error { return c.conn.Caller.Cancel(c.ctx, call.Ref(), "") },
	} {
		cmd := inThread(i, "exec sleep 300")
		call := c.send(cmd)
		c.awaitType(call.Process(), schemas.TypeProcessStarted)
		c.must(cancel(call))
		wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
	}
	// The key of another command is left alone.
	other := c.start(command("k", sh("echo on; exec sleep 300")), "on")
	c.must(c.conn.Caller.Cancel(c.ctx, other.Ref(), command("k", sh(":")).Fingerprint()))
	c.awaitEmptyQueue()
	equal(t, "running", len(c.records(other.Process())), 2)
	c.must(c.conn.Kill(c.ctx, other.Ref(), schemas.KillRequest{}))
	c.end(other)
}

// Promises 8: a cancel ends a command that may run again after a rejection, or after a loss.
func TestCancelFollowsAnEndThatIsNotFinal(t *testing.T) {
	c, w := newRig(t)
	safe := sh(":")
	safe.Retry = schemas.RetrySafe
	for _, k := range []struct {
		exec  schemas.Exec
		types []schemas.EventType
	}{
		{sh(":"), []schemas.EventType{schemas.TypeProcessRejected}},
		{safe, []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessLost}},
	} {
		cmd := command(fmt.Sprint(len(k.types)), k.exec)
		var seq uint64
		for _, typ := range k.types {
			data := map[string]any{"fingerprint": cmd.Fingerprint(), "retry": k.exec.Retry}
			if typ == schemas.TypeProcessRejected {
				data["reason"], data["error"] = schemas.ReasonRejected, schemas.Errorf(schemas.CodeUnavailable, "the store is away")
			}
			var err error
			about := publisher.About{Tenant: schemas.DefaultTenant, Thread: cmd.Thread, Process: processOf(cmd)}
			seq, err = w.conn.Append(c.ctx, w.Publisher().Event(typ, about, data), seq)
			c.must(err)
		}
		runs, err := w.HandleCancel(c.ctx, schemas.Cancel{Tenant: schemas.DefaultTenant, Thread: cmd.Thread, CancelRequest: schemas.CancelRequest{
			Process: processOf(cmd), Fingerprint: cmd.Fingerprint(),
		}})
		c.must(err)
		equal(t, "runs", runs, false)
		w.wantAnswer(cmd, true, 1, schemas.ActionDone, failed(schemas.CodeCanceled))
		c.wantRecords(processOf(cmd), append(k.types, schemas.TypeProcessRejected)...)
	}
}

// Promises 8: a command that is canceled while it is accepted either runs or is canceled, and never both.
func TestCancelRacesTheAcceptance(t *testing.T) {
	c, w := newRig(t)
	canceled := 0
	for i := range 200 {
		cmd, ran := c.touching("t", fmt.Sprint(i))
		var wg sync.WaitGroup
		var runs bool
		var err error
		wg.Go(func() {
			runs, err = w.HandleCancel(c.ctx, schemas.Cancel{Tenant: schemas.DefaultTenant, Thread: cmd.Thread, CancelRequest: schemas.CancelRequest{
				Process: processOf(cmd), Fingerprint: cmd.Fingerprint(),
			}})
		})
		v, answers := w.deliver(cmd, true, 1)
		wg.Wait()
		c.must(err)
		equal(t, "action", v.Action, schemas.ActionDone)
		r := c.terminal(answers)
		if r.Reason == schemas.ReasonRejected {
			canceled++
			wantFields(t, r, schemas.Result{Error: coded(schemas.CodeCanceled)})
		}
		equal(t, "ran", ran(), r.Reason == schemas.ReasonExited)
		if runs && r.Reason != schemas.ReasonExited {
			t.Errorf("command %d: runs, and its result is %s", i, r.Reason)
		}
	}
	t.Logf("%d of 200 were canceled", canceled)
}
