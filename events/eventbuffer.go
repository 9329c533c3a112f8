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
	// bufferSize is the most events that wait before they are sent, and half of those in flight. At this size Record sends them itself.
	bufferSize = 1024
	// bufferEvents and bufferBytes bound the events that are not stored yet, such as in an outage. Later ones are dropped.
	bufferEvents, bufferBytes = 10_000, 16 << 20
	// bufferRetry is the time between two tries to store the oldest event that failed.
	bufferRetry = 250 * time.Millisecond
	// bufferDrain bounds the time to store the remaining events when Run ends.
	bufferDrain = 10 * time.Second
	// dedupeTrust is how long the id of an event prevents a second copy for certain: somewhat less than EVT's window, a minute.
	dedupeTrust = 45 * time.Second
)

// EventBuffer stores events in the background, such as those of hooks, so that a command does not wait for them. Events keep the
// order in which they were recorded, and are stored before an event that [Records.Publish] stores later. Records of processes may
// be stored before them. While NATS is away, the worker has no lease or EVT has no room, they wait; those in flight when that began may
// then be out of order.
type EventBuffer struct {
	conn      *Conn
	onDropped func(ev *schemas.Event, err error)
	wake      chan struct{}

	mu      sync.Mutex
	pending []*bufferedEvent // not sent
	sent    []*bufferedEvent // in flight
	held    int              // all that are not stored, and their size
	bytes   int
	failing bool   // earlier events wait for the server: nothing is sent before them
	stored  uint64 // highest sequence of EVT that an ack has named
}

// bufferedEvent is an event that is not stored yet.
type bufferedEvent struct {
	ev     *schemas.Event
	future jetstream.PubAckFuture // nil before it is sent
	tried  time.Time              // when it was first sent; zero before that
	after  uint64                 // it can be in EVT only after this sequence

	failure error // of its first try
}

func (e *bufferedEvent) size() int { return len(e.ev.Data) + messageBytes }

// NewEventBuffer creates the connection's event buffer, of which there is one. onDropped is called with each event that will not be
// stored: the server refuses it, too many wait, or the buffer ends before NATS is back. Run must run.
func (w *Worker) NewEventBuffer(onDropped func(ev *schemas.Event, err error)) *EventBuffer {
	b := &EventBuffer{conn: w.conn, onDropped: onDropped, wake: make(chan struct{}, 1)}
	w.conn.buffer.Store(b)
	return b
}

// Record adds an event.
func (b *EventBuffer) Record(_ context.Context, ev *schemas.Event) {
	e := &bufferedEvent{ev: ev}
	if err := b.conn.room.enqueue(e); err != nil {
		b.onDropped(ev, err)
		return
	}
	b.add(e)
}

// publish stores an event after all that the buffer holds, or adds it when that cannot be now. Errors: those that do not pass, and
// limit_exceeded for a tenant beyond its share of EVT.
func (b *EventBuffer) publish(ctx context.Context, ev *schemas.Event) error {
	e := &bufferedEvent{ev: ev}
	if err := b.conn.room.enqueue(e); err != nil {
		return err
	}
	if b.send() {
		b.began(e)
		if err := b.conn.publish(ctx, ev); err == nil || !waits(err) {
			b.conn.room.dequeue(e)
			return err
		}
	}
	b.add(e)
	return nil
}

// add adds an event to the end, or drops it when too many wait.
func (b *EventBuffer) add(e *bufferedEvent) {
	b.mu.Lock()
	if b.held >= bufferEvents || b.bytes+e.size() > bufferBytes {
		held, bytes := b.held, b.bytes
		b.mu.Unlock()
		b.conn.room.dequeue(e)
		b.onDropped(e.ev, schemas.Errorf(schemas.CodeLimitExceeded, "%d events (%d MiB) already wait for NATS or for room in EVT", held,
			bytes>>20))
		return
	}
	b.held, b.bytes = b.held+1, b.bytes+e.size()
	b.pending = append(b.pending, e)
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

// began notes that an event is about to be sent.
func (b *EventBuffer) began(e *bufferedEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.tried, e.after = time.Now(), b.stored
}

// send publishes the pending events in order, unless earlier ones have failed, and reports whether none is left.
func (b *EventBuffer) send() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) > 0 && !b.failing && len(b.sent) < 2*bufferSize {
		e := b.pending[0]
		m, err := b.conn.eventMsg(e.ev)
		if err == nil {
			err = b.conn.room.admit(e.ev, m, false)
		}
		if err == nil {
			if e.tried.IsZero() {
				e.tried, e.after = time.Now(), b.stored
			}
			e.future, err = b.conn.js.PublishMsgAsync(m, jetstream.WithMsgID(e.ev.ID))
		}
		if b.failing = err != nil; b.failing {
			return false
		}
		b.sent, b.pending = append(b.sent, e), b.pending[1:]
	}
	return len(b.pending) == 0
}

// Run stores recorded events until ctx ends and everything recorded by then is stored. It returns ctx's error.
func (b *EventBuffer) Run(ctx context.Context) error {
	for {
		select {
		case <-b.wake:
			_ = sleep(ctx, bufferDelay) // an ended ctx needs no delay
			b.store(ctx, waits)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), bufferDrain)
			defer cancel()
			b.store(last, isTransient) // without a lease or room it would wait in vain
			b.dropAll(last.Err())
			return ctx.Err()
		}
	}
}

// waits reports whether an event that was not stored for this error may be stored later.
func waits(err error) bool {
	return isTransient(err) || errors.Is(err, schemas.ErrLost) || errors.Is(err, schemas.ErrLimitExceeded)
}

// store stores everything, in order, until ctx ends. again reports whether to try again after an error.
func (b *EventBuffer) store(ctx context.Context, again func(error) bool) {
	for ctx.Err() == nil {
		b.send()
		if b.settle() {
			return
		}
		if e := b.failed(); e != nil {
			err := b.storeOne(ctx, e)
			if err != nil && again(err) {
				_ = sleep(ctx, bufferRetry)
				continue
			}
			b.resume(e, err)
		}
	}
}

// settle waits for the acks of what is in flight, puts back what failed, and reports whether nothing is left.
func (b *EventBuffer) settle() bool {
	b.mu.Lock()
	sent := b.sent
	b.mu.Unlock()
	var failed []*bufferedEvent
	stored, held, bytes := uint64(0), 0, 0
	for _, e := range sent {
		select {
		case ack := <-e.future.Ok():
			stored, held, bytes = max(stored, ack.Sequence), held+1, bytes+e.size()
			b.conn.room.stored(e.ev.Tenant, ack.Sequence, int64(e.size()))
			b.conn.room.dequeue(e)
		case e.failure = <-e.future.Err(): // after publishTimeout at the latest
			failed = append(failed, e)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored, b.held, b.bytes = max(b.stored, stored), b.held-held, b.bytes-bytes
	b.sent = b.sent[len(sent):] // others may have sent more
	if len(failed) > 0 {
		b.pending, b.failing = append(failed, b.pending...), true
	}
	return b.held == 0
}

// failed is the oldest event when it has failed; nil while none has.
func (b *EventBuffer) failed() *bufferedEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.failing || len(b.pending) == 0 {
		b.failing = false
		return nil
	}
	return b.pending[0]
}

// storeOne stores an event that has failed, unless EVT has it: its id prevents a second copy, but not for long.
func (b *EventBuffer) storeOne(ctx context.Context, e *bufferedEvent) error {
	if !e.tried.IsZero() && time.Since(e.tried) > dedupeTrust {
		if has, err := b.conn.hasEvent(ctx, e.ev, e.after); has || err != nil {
			return err
		}
	}
	if e.tried.IsZero() {
		b.began(e)
	}
	return b.conn.publish(ctx, e.ev)
}

// hasEvent reports whether EVT has an event after a sequence. Errors: unavailable, deadline_exceeded.
func (c *Conn) hasEvent(ctx context.Context, ev *schemas.Event, after uint64) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	subject := c.subjects.Event(ev.Tenant, ev.Thread, ev.Process, ev.Type)
	_, err = readStream(ctx, c, c.names.evt, subject, after+1, decodeEvent, func(stored *schemas.Event) error {
		has = has || stored.ID == ev.ID
		return nil
	})
	return has, err
}

// resume removes the oldest event, which is stored or failed for good, and lets the others be sent.
func (b *EventBuffer) resume(e *bufferedEvent, err error) {
	b.mu.Lock()
	b.pending, b.failing = b.pending[1:], false
	b.held, b.bytes = b.held-1, b.bytes-e.size()
	b.mu.Unlock()
	b.conn.room.dequeue(e)
	if err != nil {
		b.onDropped(e.ev, err)
	}
}

// dropAll drops what is left when Run ends.
func (b *EventBuffer) dropAll(cause error) {
	b.mu.Lock()
	left := append(b.sent, b.pending...)
	b.sent, b.pending, b.held, b.bytes = nil, nil, 0, 0
	b.mu.Unlock()
	for _, e := range left {
		b.conn.room.dequeue(e)
		b.onDropped(e.ev, schemas.Errorf(schemas.CodeUnavailable, "not stored before the worker ended: %w", errors.Join(e.failure, cause)))
	}
}
