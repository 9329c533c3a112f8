package processor_test

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// sendAs sends a command of a tenant, in a thread of this name.
func (c *cell) sendAs(tenant, thread, script string) *events.Call {
	c.t.Helper()
	cmd := command("k", sh(script))
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
