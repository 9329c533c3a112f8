package events

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// publishTimeout bounds one publish with its ack. It is longer than a server needs to fail over its leader.
const publishTimeout = 5 * time.Second

// Records writes events and the write-once records of processes.
type Records struct{ conn *Conn }

// leased checks that this connection may publish as a worker; without a lease it may. Errors: lost.
func (c *Conn) leased() error { return c.lease.Load().held() }

// eventMsg is an event as EVT stores it. Errors: lost without the lease.
func (c *Conn) eventMsg(ev *schemas.Event) (*nats.Msg, error) {
	if err := c.leased(); err != nil {
		return nil, err
	}
	body, err := ev.Encode()
	if err != nil {
		return nil, err
	}
	return &nats.Msg{
		Subject: c.subjects.Event(ev.Tenant, ev.Thread, ev.Process, ev.Type),
		Data:    body,
		Header:  addTrace(nats.Header{headerType: {string(ev.Type)}, headerWorker: {ev.Source}}, ev.Origin),
	}, nil
}

// Append writes the next record of a process: after is the sequence of the record before it, 0 for the first. It returns the new
// record's sequence. A process is accepted only if EVT has room for its end. Errors: conflict when another record was written first,
// limit_exceeded when the stream is full, unavailable and deadline_exceeded when the outcome is unknown, lost without the lease.
func (r *Records) Append(ctx context.Context, ev *schemas.Event, after uint64) (seq uint64, err error) {
	defer func() { r.conn.room.settle(ev, err) }()
	m, err := r.conn.eventMsg(ev)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := r.conn.room.admit(ev, m, after == 0); err != nil {
		if last, readErr := r.Last(ctx, ev.Tenant, ev.Thread, ev.Process); after == 0 && readErr == nil {
			return 0, schemas.Errorf(schemas.CodeConflict, "process %s has the record %s", ev.Process, last.Type) // it answers a repeated command
		}
		return 0, err
	}
	var tries atomic.Int32
	ack, err := swap(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		tries.Add(1)
		return r.conn.js.PublishMsg(ctx, copyOf(m), jetstream.WithExpectLastSequenceForSubject(after, r.conn.subjects.Record(ev.Tenant, ev.Thread, ev.Process)))
	})
	if err == nil {
		r.conn.room.stored(ev.Tenant, ack.Sequence, eventSize(ev, m))
		return ack.Sequence, nil
	}
	return r.settle(ctx, ev, wrap(err, "record "+string(ev.Type)), tries.Load() > 1)
}

// AppendAsync is Append without the wait: it publishes the record, and wait returns the outcome. Do not write the next record of
// the process before wait returns.
func (r *Records) AppendAsync(ev *schemas.Event, after uint64) (wait func(context.Context) (uint64, error), err error) {
	m, err := r.conn.eventMsg(ev)
	if err != nil {
		return nil, err
	}
	if err := r.conn.room.admit(ev, m, after == 0); err != nil {
		return nil, err
	}
	future, err := r.conn.js.PublishMsgAsync(m, jetstream.WithExpectLastSequenceForSubject(after, r.conn.subjects.Record(ev.Tenant, ev.Thread, ev.Process)))
	if err != nil {
		return nil, wrap(err, "record "+string(ev.Type))
	}
	return func(ctx context.Context) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		select {
		case ack := <-future.Ok():
			r.conn.room.stored(ev.Tenant, ack.Sequence, eventSize(ev, m))
			return ack.Sequence, nil
		case err := <-future.Err():
			return r.settle(ctx, ev, wrap(err, "record "+string(ev.Type)), false)
		case <-ctx.Done():
			return r.settle(ctx, ev, wrap(ctx.Err(), "record "+string(ev.Type)), false)
		}
	}, nil
}

// settle finds the outcome of a record whose publish failed. When an ack is lost, the record is sent again, and the second copy conflicts
// with the first: a conflict is certain only when the stored record is another one. repeated says that an earlier try had no answer.
func (r *Records) settle(ctx context.Context, ev *schemas.Event, cause error, repeated bool) (uint64, error) {
	if errors.Is(cause, schemas.ErrTooLarge) || errors.Is(cause, schemas.ErrLimitExceeded) && !repeated {
		return 0, cause
	}
	err := r.conn.leased() // without the lease, the next incarnation finds the record
	if err == nil {
		// Look for the record even when the time to write it has run out.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
		defer cancel()
		var last *schemas.Event
		if last, err = r.Last(ctx, ev.Tenant, ev.Thread, ev.Process); err == nil && last.ID == ev.ID {
			return last.Seq, nil
		}
	}
	if err == nil || errors.Is(err, schemas.ErrNotFound) || isTransient(cause) {
		return 0, cause
	}
	return 0, schemas.Errorf(schemas.CodeUnavailable, "whether the record is stored is unknown (%v): %w", cause, err)
}

// Publish stores an event that is not a process record, after all events that the connection's [EventBuffer] holds. While it cannot be
// stored, it waits in that buffer, if there is one. The event's id prevents a second copy within a minute. Errors: too_large; without a
// buffer also limit_exceeded, unavailable, deadline_exceeded, lost without the lease.
func (r *Records) Publish(ctx context.Context, ev *schemas.Event) error {
	if b := r.conn.buffer.Load(); b != nil {
		return b.publish(ctx, ev)
	}
	return r.conn.publish(ctx, ev)
}

func (c *Conn) publish(ctx context.Context, ev *schemas.Event) error {
	m, err := c.eventMsg(ev)
	if err == nil {
		err = c.room.admit(ev, m, false)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ack, err := c.store(ctx, m, ev.ID)
	if err != nil {
		return wrap(err, "publish "+string(ev.Type))
	}
	if !ack.Duplicate {
		c.room.stored(ev.Tenant, ack.Sequence, eventSize(ev, m))
	}
	return nil
}

// store publishes a message, once for an id. Errors: those of nats.go.
func (c *Conn) store(ctx context.Context, m *nats.Msg, id string) (*jetstream.PubAck, error) {
	return answered(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return c.js.PublishMsg(ctx, copyOf(m), jetstream.WithMsgID(id))
	})
}

// Last is [Reader.Last].
func (r *Records) Last(ctx context.Context, tenant, thread, process string) (*schemas.Event, error) {
	return r.conn.lastRecord(ctx, r.conn.leaderLast, tenant, thread, process)
}

// Accepted reads the first record of a process, or of its last run when it ran more than once. Errors are those of Last.
func (r *Records) Accepted(ctx context.Context, tenant, thread, process string) (*schemas.Event, error) {
	return r.conn.readRecord(ctx, r.conn.leaderLast, process, r.conn.subjects.Event(tenant, thread, process, schemas.TypeProcessAccepted))
}

// LastSeq returns the sequence of the newest event in EVT. Errors: unavailable.
func (r *Records) LastSeq(ctx context.Context) (uint64, error) { return lastEvent(ctx, r.conn) }

// lastEvent asks for the state of EVT: to select the last message of all subjects, the server would look at each of them.
func lastEvent(ctx context.Context, c *Conn) (uint64, error) {
	s, err := watched(ctx, c.refusals, c.infoSubject(c.names.evt), func(ctx context.Context) (jetstream.Stream, error) {
		return c.js.Stream(ctx, c.names.evt)
	})
	if err != nil {
		return 0, wrap(err, "read EVT")
	}
	return s.CachedInfo().State.LastSeq, nil
}

// Unfinished returns the last record of each process that the worker accepted at or after this sequence of EVT and that has not
// ended. Errors: unavailable, deadline_exceeded.
func (r *Records) Unfinished(ctx context.Context, worker string, from uint64) ([]*schemas.Event, error) {
	type key struct{ tenant, thread, process string }
	open := make(map[key]bool)
	look := func(m jetstream.Msg) {
		tenant, t, ok := r.conn.subjects.tokens(m.Subject())
		if !ok || len(t) != 4 {
			return
		}
		k := key{tenant, t[0], t[1]}
		switch {
		case schemas.EventType(t[2] + "." + t[3]).Terminal():
			delete(open, k)
		case m.Headers().Get(headerWorker) == worker:
			open[k] = true
		}
	}
	next := max(from, 1)
	err := r.conn.readUntil(ctx, r.conn.names.evt, r.conn.subjects.Streams().Records(), 0, func() (_ uint64, err error) {
		next, err = r.conn.eachRecord(ctx, next, look)
		return next, err
	})
	if err != nil {
		return nil, wrap(err, "find unfinished processes")
	}
	var out []*schemas.Event
	for k := range open {
		ev, err := r.Last(ctx, k.tenant, k.thread, k.process)
		if errors.Is(err, schemas.ErrNotFound) {
			continue // its records aged out between the two reads
		}
		if err != nil {
			return nil, err
		}
		if !ev.Type.Terminal() {
			out = append(out, ev)
		}
	}
	return out, nil
}

// eachRecord passes the headers and subjects of the process records that one replica has at or after a sequence to fn. It returns the
// sequence after the last one.
func (c *Conn) eachRecord(ctx context.Context, next uint64, fn func(jetstream.Msg)) (uint64, error) {
	cons, err := c.js.OrderedConsumer(ctx, c.names.evt, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.subjects.Streams().Records()}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: next, HeadersOnly: true, InactiveThreshold: 10 * time.Second,
	})
	if err != nil || cons.CachedInfo().NumPending == 0 {
		return next, err
	}
	// One message iterator: Fetch on an ordered consumer creates a new consumer for each batch.
	it, err := cons.Messages()
	if err != nil {
		return next, err
	}
	defer it.Stop()
	for {
		wait, cancel := context.WithTimeout(ctx, readTimeout)
		m, err := it.Next(jetstream.NextContext(wait))
		cancel()
		if err != nil {
			return next, err
		}
		fn(m)
		meta, err := m.Metadata()
		if err != nil {
			return next, err
		}
		next = meta.Sequence.Stream + 1
		if meta.NumPending == 0 {
			return next, nil
		}
	}
}
