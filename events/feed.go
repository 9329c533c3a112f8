package events

import (
	"context"
	"errors"
	"time"

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
type Feed = live[*schemas.Event]

// Listen begins to listen; from is the EVT sequence of the first event wanted. Errors: unavailable.
func (c *Conn) Listen(f Filter, from uint64) (*Feed, error) {
	return listen(c, "listen to events", c.Subjects.Feed(f.tenant(), f.Thread, f.Process), from, source[*schemas.Event]{
		read: func(ctx context.Context, from uint64, fn func(*schemas.Event) error) (uint64, error) {
			return c.ReadEvents(ctx, f, from, fn)
		},
		decode: func(seq uint64, data []byte) (*schemas.Event, bool) {
			ev, err := schemas.DecodeEvent(data)
			if err != nil {
				return nil, false
			}
			ev.Seq = seq
			return ev, true
		},
	})
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
