package processor_test

import (
	"context"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// spoiled are sessions of which one thread's entry does not decode.
type spoiled struct {
	processor.Sessions
	thread string
}

// Session reads a session, as package events does.
func (s spoiled) Session(ctx context.Context, tenant, thread string) (*schemas.Session, uint64, error) {
	if thread == s.thread {
		return nil, 0, schemas.Errorf(schemas.CodeInternal, "decode the session of thread %s", thread).With(schemas.DetailUnreadable, "session."+tenant+"."+thread)
	}
	return s.Sessions.Session(ctx, tenant, thread)
}

func spoil(thread string) func(*processor.Config) {
	return func(cfg *processor.Config) { cfg.Sessions = spoiled{cfg.Sessions, thread} }
}

// Promises 14: a command of a thread whose session entry does not decode ends, and a worker starts beside such an entry.
func TestUnreadableSessionEntryEndsItsCommands(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", hasty, spoil("t"))
	v, answers := w.deliver(command("durable", sh(":")), true, 1)
	equal(t, "action of a durable command", v.Action, schemas.ActionDead)
	wantFields(t, c.terminal(answers), schemas.Result{Error: coded(schemas.CodeInternal)})
	_, answers = w.deliver(command("direct", sh(":")), false, 1)
	r := c.terminal(answers)
	wantFields(t, r, schemas.Result{Error: coded(schemas.CodeInternal)})
	equal(t, "declined", r.Error.Details[schemas.DetailDeclined], "")

	cmd := command("k", sh("echo on; exec sleep 300"))
	cmd.Thread = "t2"
	c.send(cmd)
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	w.crash()
	again := w.again(spoil("t2"))
	wantFields(t, c.result(c.awaitType(processOf(cmd), schemas.TypeProcessLost)), schemas.Result{Reason: schemas.ReasonLost})
	equal(t, "stale sandboxes", len(again.log.of("sandbox_stale")), 1)
}
