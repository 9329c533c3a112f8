package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Settings of an event buffer.
const (
	// bufferDelay is how long an event waits for others before it is sent. A batch costs less, and the records of a process, which
	// a caller waits for, are not stored behind these events.
	bufferDelay = 20 * time.Millisecond
	// bufferSize is the most events that wait. At this size Record sends them itself.
	bufferSize = 1024
	// bufferDrain bounds the time to store the remaining events when Run ends.
	bufferDrain = 10 * time.Second
)

// EventBuffer stores events in the background, such as those of hooks, so that a command does not wait for them. Events keep the
// order in which they were recorded, and are stored before an event that [Records.Publish] stores later. Records of processes may
// be stored before them. An event that the server did not ack is stored again on its own, and then may be out of order.
type EventBuffer struct {
	conn     *Conn
	onFailed func(ev *schemas.Event, err error)
	wake     chan struct{}

	mu      sync.Mutex
	pending []*schemas.Event
	sent    []sentEvent
}

type sentEvent struct {
	ev     *schemas.Event
	future jetstream.PubAckFuture // nil when it could not be sent
}

// NewEventBuffer creates the connection's event buffer, of which there is one. onFailed is called with each event that could not
// be stored. Run must run.
func (w *Worker) NewEventBuffer(onFailed func(ev *schemas.Event, err error)) *EventBuffer {
	b := &EventBuffer{conn: w.conn, onFailed: onFailed, wake: make(chan struct{}, 1)}
	w.conn.buffer.Store(b)
	return b
}

// Record adds an event.
func (b *EventBuffer) Record(_ context.Context, ev *schemas.Event) {
	b.mu.Lock()
	b.pending = append(b.pending, ev)
	full := len(b.pending) >= bufferSize
	b.mu.Unlock()
	if full {
		b.send()
	}
	select {
	case b.wake <- struct{}{}:
	default: // Run wakes up already
	}
}

// send publishes all pending events, in order.
func (b *EventBuffer) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ev := range b.pending {
		s := sentEvent{ev: ev}
		if m, err := b.conn.eventMsg(ev); err == nil && b.conn.room.admit(ev, m, false) == nil {
			if s.future, err = b.conn.js.PublishMsgAsync(m, jetstream.WithMsgID(ev.ID)); err != nil {
				s.future = nil
			}
		}
		b.sent = append(b.sent, s)
	}
	b.pending = nil
}

// Run stores recorded events until ctx ends and everything recorded by then is stored. It returns ctx's error.
func (b *EventBuffer) Run(ctx context.Context) error {
	for {
		select {
		case <-b.wake:
			_ = sleep(ctx, bufferDelay) // an ended ctx needs no delay
			b.send()
			b.settle(context.WithoutCancel(ctx)) // finish what is in flight
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), bufferDrain)
			defer cancel()
			b.send()
			b.settle(last)
			return ctx.Err()
		}
	}
}

// settle waits for the acks of all sent events and stores again those that failed.
func (b *EventBuffer) settle(ctx context.Context) {
	b.mu.Lock()
	sent := b.sent
	b.sent = nil
	b.mu.Unlock()
	for _, s := range sent {
		var first error
		if s.future != nil {
			select {
			case <-s.future.Ok():
				continue
			case first = <-s.future.Err(): // after publishTimeout at the latest
			}
		}
		// The event's id prevents a second copy.
		if err := b.conn.publish(ctx, s.ev); err != nil {
			b.onFailed(s.ev, errors.Join(first, err))
		}
	}
}
