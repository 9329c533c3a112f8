package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// mute are records of which NATS acks none of a type.
type mute struct {
	processor.Records
	typ    schemas.EventType
	waited chan struct{}
}

// Append waits for an ack until ctx ends.
func (m *mute) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	if ev.Type != m.typ {
		return m.Records.Append(ctx, ev, after)
	}
	close(m.waited)
	<-ctx.Done()
	return 0, ctx.Err()
}

// Promises 15: an incarnation whose lease has expired ends at once, also while it waits for the ack of a record. What it accepted or ended is
// the next one's to record.
func TestIncarnationWithoutALeaseWaitsForNoRecord(t *testing.T) {
	for _, typ := range []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessExited} {
		t.Run(string(typ), func(t *testing.T) {
			c := newCell(t)
			m := &mute{typ: typ, waited: make(chan struct{})}
			w := c.worker("w1", func(cfg *processor.Config) {
				m.Records, cfg.Records = cfg.Records, m
				*cfg.Timeouts() = work.Timeouts{Accept: time.Hour, Kill: time.Hour, SandboxEnd: time.Hour}
			})
			delivered := make(chan schemas.Verdict, 1)
			go func() {
				v, _ := w.deliver(command("k", sh("exit 3")), true, 1)
				delivered <- v
			}()
			<-m.waited
			w.Abandon()
			w.cancel()
			select {
			case <-w.done:
			case <-c.ctx.Done():
				t.Fatal("the incarnation still runs, want it to end")
			}
			<-delivered
			w.again() // ends what was left
		})
	}
}
