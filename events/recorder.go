package events

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// recordAhead is how many events may be on their way at once.
const recordAhead = 1024

// Recorder stores events without letting their makers wait, in the order of its calls: for events beside the way of a command,
// such as those of hooks. What the server did not take is stored a second time by itself, and then comes late.
type Recorder struct {
	conn   *Conn
	ahead  chan onItsWay
	failed func(ev *schemas.Event, err error)
}

type onItsWay struct {
	ev     *schemas.Event
	future jetstream.PubAckFuture
}

// NewRecorder makes a recorder; failed is told of each event that could not be stored. Run must run.
func (c *Conn) NewRecorder(failed func(ev *schemas.Event, err error)) *Recorder {
	return &Recorder{conn: c, ahead: make(chan onItsWay, recordAhead), failed: failed}
}

// Record sends an event. It waits only where too many are on their way.
func (r *Recorder) Record(ctx context.Context, ev *schemas.Event) {
	m, err := r.conn.eventMsg(ev)
	if err != nil {
		r.failed(ev, err)
		return
	}
	future, err := r.conn.js.PublishMsgAsync(m, jetstream.WithMsgID(ev.ID))
	if err != nil {
		future = nil // Run stores it
	}
	select {
	case r.ahead <- onItsWay{ev, future}:
	case <-ctx.Done():
		r.failed(ev, ctx.Err())
	}
}

// Run sees to it that what was sent is stored, until ctx ends and all that was recorded by then is.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case s := <-r.ahead:
			r.settle(ctx, s)
		case <-ctx.Done():
			for {
				select {
				case s := <-r.ahead:
					r.settle(ctx, s)
				default:
					return ctx.Err()
				}
			}
		}
	}
}

// settle waits for one event's ack. The last ones of a worker are stored although it ends.
func (r *Recorder) settle(ctx context.Context, s onItsWay) {
	if s.future != nil {
		select {
		case <-s.future.Ok():
			return
		case <-s.future.Err(): // after publishTimeout at the latest
		}
	}
	// Its id keeps it from being stored twice.
	if err := r.conn.Publish(context.WithoutCancel(ctx), s.ev); err != nil {
		r.failed(s.ev, err)
	}
}
