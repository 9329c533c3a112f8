package processor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Promises 10: a process may run for longer than EVT keeps its records. Its end is on record and its callers get it, and a command
// with its key gets it too.
func TestEndAfterItsRecordsHaveExpired(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	e := sh("echo on; cat")
	e.StdinOpen = true
	cmd := command("k", e)
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)

	c.expire(processOf(cmd))
	c.must(w.feed(processOf(cmd), 0, "", true))
	r := c.end(call)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonExited, Success: true, Stdout: "on\n"})
	c.wantRecords(r.Process, schemas.TypeProcessExited)
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: "on\n", Timestamp: r.Timestamp})
}

// expire lets the records of a process of thread t expire.
func (c *cell) expire(process string) {
	c.t.Helper()
	short := topology()
	short.EventAge = 200 * time.Millisecond
	c.must(c.conn.Ensure(c.ctx, short))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := c.conn.Last(c.ctx, schemas.DefaultTenant, "t", process)
		if errors.Is(err, schemas.ErrNotFound) {
			break
		}
		c.must(err)
		<-tick.C
	}
	c.must(c.conn.Ensure(c.ctx, topology()))
}

// Promises 10: a worker restarts, and a process of it runs whose records have expired. It is ended, and that is on record.
func TestRestartEndsAProcessWhoseRecordsHaveExpired(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty)
	cmd := command("k", sh("echo on; exec sleep 300"))
	c.send(cmd)
	c.output(processOf(cmd), "on")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	dead.crash()
	c.expire(processOf(cmd))
	dead.again()
	c.wantRecords(processOf(cmd), schemas.TypeProcessLost)
	last, err := c.conn.Last(c.ctx, schemas.DefaultTenant, "t", processOf(cmd))
	c.must(err)
	wantFields(t, c.result(last), schemas.Result{Reason: schemas.ReasonLost, StdoutBytes: 3, Error: coded(schemas.CodeLost)})
}

// Promises 10: what a process prints does not fill EVT.
func TestRecordsOfLongOutputAreSmall(t *testing.T) {
	c := newCell(t)
	c.worker("w1")
	r := c.exec(command("k", sh("yes | head -c 2000000; yes err | head -c 2000000 >&2")))
	last, err := c.conn.Last(c.ctx, schemas.DefaultTenant, "t", r.Process)
	c.must(err)
	if limit := 2*schemas.MaxRecordOutput + 2<<10; len(last.Data) > limit {
		t.Errorf("the record of the end has %d bytes, want at most %d", len(last.Data), limit)
	}
	equal(t, "bytes of stdout", r.StdoutBytes, 2000000)
	equal(t, "stdout truncated", r.StdoutTruncated, true)
	if !strings.HasPrefix(r.Stdout, "y\ny\n") || !strings.HasPrefix(r.Stderr, "err\n") || r.Log == nil {
		t.Errorf("stdout begins with %.10q, stderr with %.10q, range %+v: want the beginnings, and a range", r.Stdout, r.Stderr, r.Log)
	}
}

// Promises 10: while EVT is nearly full, a command is refused with limit_exceeded and a queued one waits. Nothing that was recorded is
// dropped for them.
func TestCommandsAreRefusedWhileEventsAreNearlyFull(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	narrow := topology()
	narrow.EventBytes = 1 << 20
	c.must(w.conn.Ensure(c.ctx, narrow)) // by the worker's connection: another worker's change it learns a second later, when EVT can be full
	first := command("k0", schemas.Exec{Command: "true"})
	wantFields(t, c.exec(first), schemas.Result{Success: true})
	// The worker's count of what EVT holds is a little high, until it reads the state of EVT again: then a few more commands fit.
	var refused *schemas.Command
	var v schemas.Verdict
	for sent := 1; v.Action != schemas.ActionLimit; sent++ { // it waits, which is no failed attempt
		if sent > 2000 {
			t.Fatal("EVT takes records for ever")
		}
		refused = command(fmt.Sprint("k", sent), schemas.Exec{Command: "true"})
		if r := c.exec(refused); r.Error != nil {
			wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeLimitExceeded)})
			v, _ = w.deliver(refused, true, 1)
		}
	}
	wantFields(t, c.exec(first), schemas.Result{Success: true})
	c.wantRecords(processOf(first), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)

	wide := topology()
	wide.EventBytes = 64 << 20
	c.must(c.conn.Ensure(c.ctx, wide))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		v, answers := w.deliver(refused, true, 1)
		if v.Action == schemas.ActionDone {
			wantFields(t, c.terminal(answers), schemas.Result{Success: true})
			return
		}
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			t.Fatal("a queued command does not run although EVT has room again")
		}
	}
}
