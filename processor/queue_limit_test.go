package processor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// brimming are records without room for a new process, until room is set.
type brimming struct {
	processor.Records
	room    *atomic.Bool
	refused chan<- struct{}
}

func (b *brimming) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	if ev.Type == schemas.TypeProcessAccepted && !b.room.Load() {
		b.refused <- struct{}{}
		return 0, schemas.Errorf(schemas.CodeLimitExceeded, "the stream EVT is full")
	}
	return b.Records.Append(ctx, ev, after)
}

// Promises 3: a queued command waits for room in EVT as it does for a slot: that is no failed attempt, and its caller receives the reason
// once.
func TestQueuedCommandWaitsForRoomInEvents(t *testing.T) {
	c := newCell(t)
	call := c.queue(command("k", sh("echo on")))
	room, refused := new(atomic.Bool), make(chan struct{}, 1000)
	c.worker("w1", func(cfg *processor.Config) {
		cfg.MaxAttempts, cfg.Records = 1, &brimming{cfg.Records, room, refused}
	})
	c.wantWaiting(call, schemas.CodeLimitExceeded)
	for range 4 {
		<-refused
	}
	room.Store(true)
	ev, err := call.Next(c.ctx)
	c.must(err)
	equal(t, "second event", ev.Type, schemas.TypeProcessAccepted)
	wantFields(t, c.end(call), schemas.Result{Stdout: "on\n", Worker: "w1"})
}

// wantWaiting fails the test unless the next event of a call says that the command waits, with this code.
func (c *cell) wantWaiting(call *events.Call, code schemas.Code) {
	c.t.Helper()
	ev, err := call.Next(c.ctx)
	c.must(err)
	equal(c.t, "event", ev.Type, schemas.TypeCommandWaiting)
	var why schemas.Error
	c.must(ev.Decode(&why))
	equal(c.t, "code", why.Code, code)
	equal(c.t, "queued", call.Queued(), true)
}
