package events

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// publishTimeout bounds one publish with its ack. It is longer than a server takes to fail over its leader.
const publishTimeout = 5 * time.Second

// eventMsg is an event as EVT keeps it. Errors: lost where this worker may no longer publish one.
func (c *Conn) eventMsg(ev *schemas.Event) (*nats.Msg, error) {
	if err := c.leased(); err != nil {
		return nil, err
	}
	body, err := ev.Encode()
	if err != nil {
		return nil, err
	}
	return &nats.Msg{
		Subject: c.Subjects.Event(ev.Tenant, ev.Thread, ev.Process, ev.Type),
		Data:    body,
		Header:  nats.Header{headerType: {string(ev.Type)}, headerWorker: {ev.Source}},
	}, nil
}

// Append writes the next record of a process: after is the sequence of the one before, 0 for the first. It returns the new
// record's sequence. Errors: conflict when another record came first, so that this one must not be; limit_exceeded when the
// stream is full; unavailable and deadline_exceeded when it is not known whether it was written.
func (c *Conn) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	m, err := c.eventMsg(ev)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequenceForSubject(after, c.Subjects.Record(ev.Tenant, ev.Thread, ev.Process)))
	if err == nil {
		return ack.Sequence, nil
	}
	// Whether it was written is asked for even when the time for writing it has run out.
	return c.settle(context.WithoutCancel(ctx), ev, wrap(err, "record "+string(ev.Type)))
}

// AppendAsync is Append without the wait: the record is on its way when it returns, and wait tells what became of it. The
// next record of the process must not be written before.
func (c *Conn) AppendAsync(ev *schemas.Event, after uint64) (wait func(context.Context) (uint64, error), err error) {
	m, err := c.eventMsg(ev)
	if err != nil {
		return nil, err
	}
	future, err := c.js.PublishMsgAsync(m, jetstream.WithExpectLastSequenceForSubject(after, c.Subjects.Record(ev.Tenant, ev.Thread, ev.Process)))
	if err != nil {
		return nil, wrap(err, "record "+string(ev.Type))
	}
	return func(ctx context.Context) (uint64, error) {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		select {
		case ack := <-future.Ok():
			return ack.Sequence, nil
		case err := <-future.Err():
			return c.settle(ctx, ev, wrap(err, "record "+string(ev.Type)))
		case <-ctx.Done():
			return c.settle(context.WithoutCancel(ctx), ev, wrap(ctx.Err(), "record "+string(ev.Type)))
		}
	}, nil
}

// settle finds out what became of a record whose publish failed. An ack may be lost on the way back, and the client
// library then sends the record again: the conflict it meets is with itself.
func (c *Conn) settle(ctx context.Context, ev *schemas.Event, cause error) (uint64, error) {
	if errors.Is(cause, schemas.ErrLimitExceeded) || errors.Is(cause, schemas.ErrTooLarge) {
		return 0, cause
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	last, err := c.Last(ctx, ev.Tenant, ev.Thread, ev.Process)
	if err == nil && last.ID == ev.ID {
		return last.Seq, nil
	}
	return 0, cause
}

// Publish writes an event that is no process record. Its id keeps a repetition within a minute from being stored
// twice. Errors: limit_exceeded, unavailable, deadline_exceeded.
func (c *Conn) Publish(ctx context.Context, ev *schemas.Event) error {
	if r := c.recorder.Load(); r != nil {
		r.send() // what was recorded before is stored before
	}
	return c.publish(ctx, ev)
}

func (c *Conn) publish(ctx context.Context, ev *schemas.Event) error {
	m, err := c.eventMsg(ev)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err = c.js.PublishMsg(ctx, m, jetstream.WithMsgID(ev.ID))
	return wrap(err, "publish "+string(ev.Type))
}

// Last reads the newest record of a process. With an empty thread the process is found by its id alone. Errors: not_found,
// unavailable, deadline_exceeded.
func (c *Conn) Last(ctx context.Context, tenant, thread, process string) (*schemas.Event, error) {
	subject := c.Subjects.Record(tenant, thread, process)
	if thread == "" {
		subject = c.Subjects.AnyRecord(tenant, process)
	}
	newest, err := c.directLast(ctx, c.names.evt, subject)
	if err != nil {
		return nil, wrap(err, "read the record of process "+process)
	}
	if newest == nil {
		return nil, schemas.Errorf(schemas.CodeNotFound, "no process %s is on record: it never ran, or its record is older than EVT keeps", process)
	}
	ev, err := schemas.DecodeEvent(newest.data)
	if err != nil {
		return nil, err
	}
	ev.Seq = newest.seq
	return ev, nil
}

func parseUint(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0 // an absent header: no sequence is 0
	}
	return n
}
