package processor_test

import (
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 6: a full worker does not claim the thread of a direct command. A worker with room takes it; without one the command waits in
// the queue for the first that has room. A session needs no room.
func TestFullWorkerClaimsNoThreadForADirectCommand(t *testing.T) {
	c := newCell(t)
	one := func(cfg *processor.Config) { cfg.MaxProcesses = 1 }
	c.worker("w1", one)
	first := c.send(inThread(100, "exec sleep 300"))
	c.awaitType(first.Process(), schemas.TypeProcessStarted)

	waiting := c.send(inThread(0, ":"))
	equal(t, "queued with a full worker", waiting.Queued(), true)
	p, err := c.conn.Place(c.ctx, schemas.DefaultTenant, schemas.PlaceRequest{Thread: "session"})
	c.must(err)
	equal(t, "worker of the session", p.Worker, "w1")

	c.worker("w2")
	wantFields(t, c.end(waiting), schemas.Result{Success: true, Worker: "w2"})
	for i := 1; i < 12; i++ { // place requests reach either worker
		call := c.send(inThread(i, ":"))
		equal(t, fmt.Sprintf("queued with room elsewhere: %d", i), call.Queued(), false)
		wantFields(t, c.end(call), schemas.Result{Success: true, Worker: "w2"})
	}
	c.must(c.conn.Kill(c.ctx, first.Ref(), schemas.KillRequest{}))
	wantFields(t, c.end(first), schemas.Result{Reason: schemas.ReasonKilled, Worker: "w1"})
}
