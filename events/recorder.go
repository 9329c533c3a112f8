package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// How a recorder gathers.
const (
	// recordLinger is how long an event waits for others before it is sent: many at once cost less, and a process's own
	// records, which somebody waits for, are not stored behind them.
	recordLinger = 20 * time.Millisecond
	// recordAhead is how many events wait at most; with more, whoever records sends them at once.
	recordAhead = 1024
	// recordDrain bounds the storing of what is left when the recorder ends.
	recordDrain = 10 * time.Second
)

// Recorder stores events without letting their makers wait: those beside the way of a command, such as those of hooks. They keep the
// order they were recorded in, among themselves and before whatever [Conn.Publish] stores later; records of processes may be stored
// before them. What the server did not take is stored once more by itself, and then comes late.
type Recorder struct {
	conn   *Conn
	failed func(ev *schemas.Event, err error)
	wake   chan struct{}

	mu      sync.Mutex
	waiting []*schemas.Event
	sent    []onItsWay
}

type onItsWay struct {
	ev     *schemas.Event
	future jetstream.PubAckFuture // nil for one that could not be sent
}

// NewRecorder makes the connection's recorder; failed is told of each event that could not be stored. Run must run.
func (c *Conn) NewRecorder(failed func(ev *schemas.Event, err error)) *Recorder {
	r := &Recorder{conn: c, failed: failed, wake: make(chan struct{}, 1)}
	c.recorder.Store(r)
	return r
}

// Record takes an event, which is sent soon.
func (r *Recorder) Record(_ context.Context, ev *schemas.Event) {
	r.mu.Lock()
	r.waiting = append(r.waiting, ev)
	full := len(r.waiting) >= recordAhead
	r.mu.Unlock()
	if full {
		r.send()
	}
	select {
	case r.wake <- struct{}{}:
	default: // one is enough
	}
}

// send hands all that waits to the connection, in order.
func (r *Recorder) send() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ev := range r.waiting {
		s := onItsWay{ev: ev}
		if m, err := r.conn.eventMsg(ev); err == nil {
			if s.future, err = r.conn.js.PublishMsgAsync(m, jetstream.WithMsgID(ev.ID)); err != nil {
				s.future = nil
			}
		}
		r.sent = append(r.sent, s)
	}
	r.waiting = nil
}

// Run sends what is recorded and sees to it that it is stored, until ctx ends and all that was recorded by then is.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-r.wake:
			_ = pause(ctx, recordLinger) // where ctx ends, there is no need to wait
			r.send()
			r.settle(context.WithoutCancel(ctx)) // what is under way is stored
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordDrain)
			defer cancel()
			r.send()
			r.settle(last)
			return ctx.Err()
		}
	}
}

// settle waits for the acks of what was sent.
func (r *Recorder) settle(ctx context.Context) {
	r.mu.Lock()
	sent := r.sent
	r.sent = nil
	r.mu.Unlock()
	for _, s := range sent {
		var first error
		if s.future != nil {
			select {
			case <-s.future.Ok():
				continue
			case first = <-s.future.Err(): // after publishTimeout at the latest
			}
		}
		// Its id keeps it from being stored twice.
		if err := r.conn.publish(ctx, s.ev); err != nil {
			r.failed(s.ev, errors.Join(first, err))
		}
	}
}
