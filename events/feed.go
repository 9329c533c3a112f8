package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Filter says which events to read. Empty fields match all.
type Filter struct {
	// Tenant is whose. Default [schemas.DefaultTenant].
	Tenant string
	// Thread and Process narrow it down.
	Thread, Process string
}

func (f Filter) tenant() string {
	if f.Tenant == "" {
		return schemas.DefaultTenant
	}
	return f.Tenant
}

// Feed listens to events as they are stored. It is for one goroutine.
type Feed struct {
	conn *Conn
	sub  *nats.Subscription
	f    Filter
	last uint64
	line uint64 // the connection's count of reconnects when EVT was last known to hold nothing unseen
}

// Listen begins to listen; from is the EVT sequence of the first event wanted. Errors: unavailable.
func (c *Conn) Listen(f Filter, from uint64) (*Feed, error) {
	sub, err := c.nc.SubscribeSync(c.Subjects.Feed(f.tenant(), f.Thread, f.Process))
	if err != nil {
		return nil, wrap(err, "listen to events")
	}
	if err := sub.SetPendingLimits(-1, followBuffer); err != nil {
		return nil, wrap(err, "listen to events")
	}
	feed := &Feed{conn: c, sub: sub, f: f, line: c.nc.Stats().Reconnects}
	if from > 0 {
		feed.last = from - 1
	}
	return feed, nil
}

// Close ends the subscription.
func (l *Feed) Close() { _ = l.sub.Unsubscribe() } // should it fail, it ends with the connection

// CatchUp delivers what EVT has now. Errors are fn's, unavailable or deadline_exceeded.
func (l *Feed) CatchUp(ctx context.Context, fn func(*schemas.Event) error) error {
	line := l.conn.nc.Stats().Reconnects
	next, err := l.conn.ReadEvents(ctx, l.f, l.last+1, fn)
	l.last = max(l.last, next-1)
	if err == nil {
		l.line = line
	}
	return err
}

// Next waits for one live event and delivers it, after reading any that a full buffer or a broken connection made it miss.
// Errors are fn's, ctx's, unavailable or deadline_exceeded.
func (l *Feed) Next(ctx context.Context, fn func(*schemas.Event) error) error {
	if l.conn.nc.Stats().Reconnects != l.line {
		return l.makeUp(ctx, fn)
	}
	m, err := nextWithin(ctx, l.sub, lineCheck)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nats.ErrTimeout):
		return nil // time to look at the line again
	case errors.Is(err, nats.ErrSlowConsumer):
		return l.makeUp(ctx, fn)
	default:
		return wrap(err, "listen to events")
	}
	seq := parseUint(m.Header.Get(headerSequence))
	if seq <= l.last {
		return nil
	}
	l.last = seq
	if ev, decodeErr := schemas.DecodeEvent(m.Data); decodeErr == nil { // else it is none of this contract's, and of no use to a reader
		ev.Seq = seq
		return fn(ev)
	}
	return nil
}

// makeUp is CatchUp with patience: a server that has just come back may not read its streams yet.
func (l *Feed) makeUp(ctx context.Context, fn func(*schemas.Event) error) error {
	for {
		err := l.CatchUp(ctx, func(ev *schemas.Event) error { return callersOwn(fn(ev)) })
		var own *ofCaller
		switch {
		case errors.As(err, &own):
			return own.err
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil || !passing(err) || l.conn.nc.IsClosed():
			return err
		}
		if err := pause(ctx, lineCheck); err != nil {
			return err
		}
	}
}

// ReadEvents reads stored events from a sequence on, in order. It returns the sequence after the last one read. Errors are
// fn's, unavailable or deadline_exceeded.
func (c *Conn) ReadEvents(ctx context.Context, f Filter, from uint64, fn func(*schemas.Event) error) (next uint64, err error) {
	return c.readEvents(ctx, c.Subjects.Events(f.tenant(), f.Thread, f.Process), from, fn)
}

func (c *Conn) readEvents(ctx context.Context, subject string, from uint64, fn func(*schemas.Event) error) (next uint64, err error) {
	next = max(from, 1)
	for {
		msgs, more, err := c.directGet(ctx, c.names.evt, directRequest{Seq: next, NextBy: subject, Batch: readBatch, MaxBytes: readBatchBytes})
		for i := range msgs {
			next = msgs[i].seq + 1
			ev, err := schemas.DecodeEvent(msgs[i].data)
			if err != nil {
				continue
			}
			ev.Seq = msgs[i].seq
			if err := fn(ev); err != nil {
				return next, err
			}
		}
		if err != nil || !more {
			return next, err
		}
	}
}

// Unfinished finds the processes that a worker has accepted, from a sequence of EVT on, and not brought to an end: the last
// record of each. Errors: unavailable, deadline_exceeded.
func (c *Conn) Unfinished(ctx context.Context, worker string, from uint64) ([]*schemas.Event, error) {
	type key struct{ tenant, thread, process string }
	open := make(map[key]bool)
	// Headers tell all that is needed: no output has to be read to find what is unfinished.
	cons, err := c.js.OrderedConsumer(ctx, c.names.evt, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{c.Subjects.AllRecords()}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: max(from, 1), HeadersOnly: true, InactiveThreshold: 10 * time.Second,
	})
	if err != nil {
		return nil, wrap(err, "look for unfinished processes")
	}
	if err := c.eachRecord(ctx, cons, func(m jetstream.Msg) {
		tenant, t, ok := c.Subjects.tokens(m.Subject())
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
	}); err != nil {
		return nil, wrap(err, "look for unfinished processes")
	}
	var out []*schemas.Event
	for k := range open {
		ev, err := c.Last(ctx, k.tenant, k.thread, k.process)
		if errors.Is(err, schemas.ErrNotFound) {
			continue // its records have aged out between the two reads
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

// eachRecord gives what a consumer has now to fn. It is one consumer for all of it: an ordered one that is fetched from is
// made anew for each batch.
func (c *Conn) eachRecord(ctx context.Context, cons jetstream.Consumer, fn func(jetstream.Msg)) error {
	if cons.CachedInfo().NumPending == 0 {
		return nil
	}
	it, err := cons.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		wait, cancel := context.WithTimeout(ctx, readPatience)
		m, err := it.Next(jetstream.NextContext(wait))
		cancel()
		if err != nil {
			return err
		}
		fn(m)
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.NumPending == 0 {
			return nil
		}
	}
}

// LastSeq is the sequence of EVT's newest event. Errors: unavailable.
func (c *Conn) LastSeq(ctx context.Context) (uint64, error) {
	s, err := c.js.Stream(ctx, c.names.evt)
	if err != nil {
		return 0, wrap(err, "read EVT")
	}
	return s.CachedInfo().State.LastSeq, nil
}

// Processes reads every record of every process of a thread, or of the tenant's every thread when it is empty, as far
// back as EVT goes, oldest first: the last one told of a process says where it stands. Errors: fn's, unavailable,
// deadline_exceeded.
func (c *Conn) Processes(ctx context.Context, f Filter, fn func(*schemas.Event) error) error {
	subject := c.Subjects.Record(f.tenant(), orAny(f.Thread), orAny(f.Process))
	_, err := c.readEvents(ctx, subject, 1, fn)
	return err
}
