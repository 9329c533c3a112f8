package processor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestKeyRunsOnceAndReplaysItsResult(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", sh("echo $$; echo ran >>ran; wc -l <ran"))
	first := c.exec(cmd)
	for _, durable := range []bool{false, true} {
		v, answers := w.deliver(cmd, durable, 1)
		again := c.terminal(answers)
		equal(t, "action", v.Action, schemas.ActionDone)
		equal(t, "stdout", again.Stdout, first.Stdout)
		equal(t, "timestamp", again.Timestamp.UTC(), first.Timestamp.UTC())
	}
	equal(t, "command_replayed lines", len(w.log.of("command_replayed")), 2)
	// Another command with the same key is a conflict, and the first result stays.
	other := command("k", sh("echo other"))
	for _, durable := range []bool{false, true} {
		w.wantAnswer(other, durable, 1, schemas.ActionDead, failed(schemas.CodeConflict))
	}
	equal(t, "the log holds a key", strings.Contains(w.log.raw.String(), `"k\"`), false)
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: first.Stdout})
	c.wantRecords(first.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

func TestKeyRunsOnceForConcurrentCallersOnBothPaths(t *testing.T) {
	c, w := newRig(t)
	for _, key := range []string{"a", "b", "c", "d"} {
		cmd := command(key, sh("echo ran >>ran-"+key+"; wc -l <ran-"+key))
		other := command(key, sh("echo other"))
		var all sync.WaitGroup
		var mu sync.Mutex
		ran := map[string]int{}
		for i := range 16 {
			all.Go(func() {
				mine := cmd
				if i%8 == 7 {
					mine = other
				}
				var r *schemas.Result
				if i%2 == 0 {
					r = c.end(c.send(mine))
				} else {
					v, answers := w.deliver(mine, i%4 == 1, 1)
					r = c.terminal(answers)
					want := schemas.ActionDone
					if r.Error != nil {
						want = schemas.ActionDead // a conflict
					}
					if v.Action != want {
						t.Errorf("action = %v, want %v", v.Action, want)
						return
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if r.Error != nil {
					ran[string(r.Error.Code)]++
				} else {
					ran[strings.TrimSpace(r.Stdout)]++
				}
			})
		}
		all.Wait()
		// The command that came first ran once, and the other is always a conflict.
		if !(ran["1"] == 14 && ran["conflict"] == 2) && !(ran["other"] == 2 && ran["conflict"] == 14) {
			t.Errorf("key %s: outcomes are %v, want one command to run and the other to conflict", key, ran)
		}
		c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	}
}

func TestAttachIsAnsweredAtOnce(t *testing.T) {
	c, w := newRig(t)
	e := sh("echo on; read line; echo got $line")
	e.StdinOpen = true
	cmd := command("k", e)
	first := c.send(cmd)
	c.output(first.Process(), "on")
	second := c.send(cmd)
	equal(t, "command of a running process is queued", second.Queued(), false)
	if ev, err := second.Next(c.ctx); err != nil || ev.Type != schemas.TypeProcessAccepted {
		t.Fatalf("first answer = %v, error %v; want accepted", ev, err)
	}
	v, answers := w.deliver(cmd, true, 1)
	equal(t, "action", v.Action, schemas.ActionDone)
	w.wantAnswer(command("k", sh("echo other")), false, 1, schemas.ActionDead, failed(schemas.CodeConflict))
	c.must(c.conn.WriteStdin(c.ctx, schemas.ProcessRef{Tenant: "default", Thread: "t", Process: first.Process()}, schemas.StdinPiece{Data: []byte("it\n"), End: true}))
	for _, r := range []*schemas.Result{c.end(first), c.end(second), c.terminal(answers)} {
		wantFields(t, r, schemas.Result{Stdout: "on\ngot it\n"})
	}
}

func TestReplayAfterAWorkerRestart(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", sh("echo $$"))
	first := c.exec(cmd)
	w.stop()
	w = c.worker("w1")
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: first.Stdout})
	w.wantAnswer(command("k", sh("echo other")), true, 1, schemas.ActionDead, failed(schemas.CodeConflict))
	// A new owner has a new epoch, in the same session.
	s, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, "t")
	c.must(err)
	wantFields(t, s, schemas.Session{Epoch: 2, Owner: "w1"})
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeSessionReused })
}

// Promises 7: without a worker, the record of a key is no answer to another command.
func TestUsedKeyIsAConflictWithoutAWorker(t *testing.T) {
	c, w := newRig(t)
	c.exec(command("k", sh("echo first")))
	w.stop()
	_, err := c.conn.Send(c.ctx, schemas.DefaultTenant, command("k", sh("echo second")))
	equal(t, "code", schemas.CodeOf(err), schemas.CodeConflict)
	wantFields(t, c.exec(command("k", sh("echo first"))), schemas.Result{Stdout: "first\n"})
}

// Promises 12: a command that was rejected for a cause that may pass runs when it is sent again. What has run does not.
func TestRejectionThatMayPassIsNotReplayed(t *testing.T) {
	c, w := newRig(t)
	w.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the store is away")
	}
	cmd := command("k", sh("echo ran >>ran; wc -l <ran"))
	rejected := schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeUnavailable)}
	before := time.Now().Add(-time.Minute)
	wantFields(t, c.exec(cmd), rejected)
	again := []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessRejected}
	c.wantRecords(processOf(cmd), again...)
	// A second delivery of a command that the rejection has answered runs nothing.
	inbox, answers := w.inbox()
	d := schemas.Delivery{Tenant: schemas.DefaultTenant, Thread: "t", Op: cmd.Op, Inbox: inbox, Durable: true, Attempt: 2, Sent: before}
	d.SetCommand(cmd)
	equal(t, "action", w.HandleCommand(c.ctx, d).Action, schemas.ActionDone)
	wantFields(t, c.terminal(answers), rejected)
	c.wantRecords(processOf(cmd), again...)
	// Another command of the key is a conflict.
	wantFields(t, c.exec(command("k", sh("echo other"))), failed(schemas.CodeConflict))
	// Without a worker the command waits for one: the rejection is no answer to it.
	w.stop()
	call := c.send(cmd)
	equal(t, "queued", call.Queued(), true)
	c.worker("w1")
	wantFields(t, c.end(call), schemas.Result{Stdout: "1\n"})
	c.wantRecords(processOf(cmd), append(again, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)...)
	// From here on its result is replayed.
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: "1\n"})
}
