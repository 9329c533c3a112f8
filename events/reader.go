package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Reader reads and follows what is stored: events, output, messages, sessions, workers and templates.
type Reader struct{ conn *Conn }

// Filter selects events. Empty fields match all.
type Filter struct {
	// Tenant is the tenant. Default [schemas.DefaultTenant].
	Tenant string
	// Thread and Process select the events of one thread and one process.
	Thread, Process string
}

func (f Filter) tenant() string { return cmp.Or(f.Tenant, schemas.DefaultTenant) }

// ReadEvents passes the stored events at or after a sequence of EVT to fn, in order. It returns the sequence after the last one
// read. Errors: fn's, unavailable, deadline_exceeded.
func (r *Reader) ReadEvents(ctx context.Context, f Filter, from uint64, fn func(*schemas.Event) error) (next uint64, err error) {
	return readStream(ctx, r.conn, r.conn.names.evt, r.conn.subjects.Events(f.tenant(), f.Thread, f.Process), from, decodeEvent, fn)
}

// Records passes the process records that match and are at or after a sequence of EVT to fn, oldest first. The last record of a process is
// its current state. Errors: fn's, unavailable, deadline_exceeded.
func (r *Reader) Records(ctx context.Context, f Filter, from uint64, fn func(*schemas.Event) error) error {
	subject := r.conn.subjects.Record(f.tenant(), orAny(f.Thread), orAny(f.Process))
	_, err := readStream(ctx, r.conn, r.conn.names.evt, subject, from, decodeEvent, fn)
	return err
}

// EventFeed follows events as they are stored. It is for one goroutine.
type EventFeed = tailer[*schemas.Event]

// FollowEvents subscribes to the events that match; from is the EVT sequence of the first event to deliver. Errors: unavailable.
func (r *Reader) FollowEvents(f Filter, from uint64) (*EventFeed, error) {
	c := r.conn
	return newTailer(c, "follow events", c.subjects.Feed(f.tenant(), f.Thread, f.Process), from, source[*schemas.Event]{
		stream: c.names.evt, subject: c.subjects.Events(f.tenant(), f.Thread, f.Process),
		read: func(ctx context.Context, from uint64, fn func(*schemas.Event) error) (uint64, error) {
			return r.ReadEvents(ctx, f, from, fn)
		},
		decode: decodeEvent,
	})
}

func decodeEvent(seq uint64, data []byte) (*schemas.Event, bool) {
	ev, err := schemas.DecodeEvent(data)
	if err != nil {
		return nil, false
	}
	ev.Seq = seq
	return ev, true
}

// Messages passes the stored messages of a thread at or after a sequence of MSG to fn, in order. It returns the sequence after the
// last one read. Errors: fn's, unavailable, deadline_exceeded.
func (r *Reader) Messages(ctx context.Context, tenant, thread string, from uint64, fn func(*schemas.Message) error) (next uint64, err error) {
	c := r.conn
	read := func(from uint64) (uint64, error) {
		return readStream(ctx, c, c.names.msg, c.subjects.Messages(tenant, thread), from, decodeMessage, func(m *schemas.Message) error { return markCallback(fn(m)) })
	}
	next, err = read(from)
	if errors.Is(err, schemas.ErrUnavailable) {
		if c.noMessages(ctx) {
			return next, nil
		}
		next, err = read(next) // the first message may have created the stream since
	}
	var own *callbackError
	if errors.As(err, &own) {
		return next, own.err
	}
	return next, err
}

// noMessages reports whether the stream MSG does not exist, which the first message creates.
func (c *Conn) noMessages(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := c.js.Stream(ctx, c.names.msg)
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// MessageFeed follows the messages of a thread as they are stored. It is for one goroutine.
type MessageFeed = tailer[*schemas.Message]

// FollowMessages subscribes to the messages of a thread, which may have none yet; from is the MSG sequence of the first message to
// deliver. Errors: unavailable.
func (r *Reader) FollowMessages(tenant, thread string, from uint64) (*MessageFeed, error) {
	c := r.conn
	return newTailer(c, "follow messages", c.subjects.Said(tenant, thread), from, source[*schemas.Message]{
		stream: c.names.msg, subject: c.subjects.Messages(tenant, thread),
		read: func(ctx context.Context, from uint64, fn func(*schemas.Message) error) (uint64, error) {
			return r.Messages(ctx, tenant, thread, from, fn)
		},
		decode: decodeMessage,
	})
}

// readStream passes the stored messages on a subject at or after a sequence to fn, in order, except those that decode rejects. It waits
// for a replica that lags behind, and tries again while the stream does not answer. It returns the sequence after the last one read.
func readStream[T any](ctx context.Context, c *Conn, stream, subject string, from uint64, decode func(uint64, []byte) (T, bool), fn func(T) error) (next uint64, err error) {
	next = max(from, 1)
	err = firstRead(ctx, c.bulk.IsClosed, func(ctx context.Context, fn func(T) error) error {
		return c.readUntil(ctx, stream, subject, 0, func() (_ uint64, err error) {
			next, err = readBatches(ctx, c, stream, subject, next, decode, fn)
			return next, err
		})
	}, fn)
	return next, err
}

// readBatches reads what one replica has.
func readBatches[T any](ctx context.Context, c *Conn, stream, subject string, next uint64, decode func(uint64, []byte) (T, bool), fn func(T) error) (uint64, error) {
	for {
		msgs, more, err := c.directGet(ctx, stream, directRequest{Seq: next, NextBy: subject, Batch: readBatch, MaxBytes: readBatchBytes})
		for i := range msgs {
			next = msgs[i].seq + 1
			if v, ok := decode(msgs[i].seq, msgs[i].data); ok {
				if err := fn(v); err != nil {
					return next, err
				}
			}
		}
		if err != nil || !more {
			return next, err
		}
	}
}

// Last reads the newest record of a process. With an empty thread it finds the process by its id alone. Errors: not_found,
// unavailable, deadline_exceeded.
func (r *Reader) Last(ctx context.Context, tenant, thread, process string) (*schemas.Event, error) {
	return r.conn.lastRecord(ctx, r.conn.leaderLast, tenant, thread, process)
}

// lastReader reads the newest message on a subject of a stream: leaderLast where a decision depends on it, directLast where it is read
// again and again.
type lastReader func(ctx context.Context, stream, subject string) (*storedMsg, error)

func (c *Conn) lastRecord(ctx context.Context, read lastReader, tenant, thread, process string) (*schemas.Event, error) {
	subject := c.subjects.Record(tenant, thread, process)
	if thread == "" {
		subject = c.subjects.AnyRecord(tenant, process)
	}
	return c.readRecord(ctx, read, process, subject)
}

// readRecord reads the newest message on a subject of a process's records.
func (c *Conn) readRecord(ctx context.Context, read lastReader, process, subject string) (*schemas.Event, error) {
	newest, err := read(ctx, c.names.evt, subject)
	if err != nil {
		return nil, wrap(err, "read the record of process "+process)
	}
	if newest == nil {
		return nil, schemas.Errorf(schemas.CodeNotFound, "process %s has no record: it never ran, or its record has expired", process)
	}
	ev, err := schemas.DecodeEvent(newest.data)
	if err != nil {
		return nil, err
	}
	ev.Seq = newest.seq
	// A header that is missing leaves the zero time, which is before every command.
	ev.Stored, _ = time.Parse(time.RFC3339Nano, newest.header.Get(headerTimestamp))
	return ev, nil
}

// Session reads the session of a thread. The value may be stale. Errors: not_found, unavailable.
func (r *Reader) Session(ctx context.Context, tenant, thread string) (*schemas.Session, error) {
	s, _, err := r.conn.readSession(ctx, tenant, thread)
	return s, err
}

// Sessions passes the sessions of a tenant to fn, in the order of their last change. A session that changes during the read may be
// passed twice. Errors: fn's, unavailable, deadline_exceeded.
func (r *Reader) Sessions(ctx context.Context, tenant string, fn func(*schemas.Session) error) error {
	return r.conn.eachSession(ctx, tenant, func(s *schemas.Session, _ uint64) error { return fn(s) })
}

// Workers lists the registered workers, dead ones included. Errors: unavailable.
func (r *Reader) Workers(ctx context.Context) ([]schemas.WorkerInfo, error) {
	return r.conn.listWorkers(ctx)
}

// Template reads the template of this name. Errors: invalid_argument, not_found, unavailable.
func (r *Reader) Template(ctx context.Context, name string) (*schemas.Template, error) {
	if err := schemas.CheckID("template", name); err != nil {
		return nil, err
	}
	t := new(schemas.Template)
	if _, err := r.conn.readState(ctx, templatePrefix+name, "template "+name, t); err != nil {
		return nil, err
	}
	return t, nil
}

// Templates lists the templates of all workers, sorted by name. Errors: unavailable.
func (r *Reader) Templates(ctx context.Context) ([]*schemas.Template, error) {
	stored, err := r.conn.storedTemplates(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*schemas.Template, 0, len(stored))
	for _, body := range stored {
		t := new(schemas.Template)
		if json.Unmarshal(body, t) == nil { // a later version may have written it in another form
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *schemas.Template) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
