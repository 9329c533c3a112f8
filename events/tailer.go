package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// tailer delivers the messages of a stream from their live copies, and reads what it missed from the stream. It is for one
// goroutine.
type tailer[T any] struct {
	conn       *Conn
	operation  string // for errors
	sub        *nats.Subscription
	source     source[T]
	last       uint64
	reconnects uint64 // the connection's reconnects when the stream last had nothing unread
}

// source is the stream that a tailer follows.
type source[T any] struct {
	// read passes what is stored at or after a sequence to fn, and returns the sequence after the last one.
	read func(ctx context.Context, from uint64, fn func(T) error) (next uint64, err error)
	// decode returns false for a message that is not of this contract.
	decode func(seq uint64, data []byte) (T, bool)
}

func newTailer[T any](c *Conn, operation, subject string, from uint64, src source[T]) (*tailer[T], error) {
	sub, err := c.nc.SubscribeSync(subject)
	if err != nil {
		return nil, wrap(err, operation)
	}
	if err := sub.SetPendingLimits(-1, followBuffer); err != nil {
		return nil, wrap(err, operation)
	}
	t := &tailer[T]{conn: c, operation: operation, sub: sub, source: src, reconnects: c.nc.Stats().Reconnects}
	if from > 0 {
		t.last = from - 1
	}
	return t, nil
}

// Close ends the subscription.
func (t *tailer[T]) Close() { _ = t.sub.Unsubscribe() } // on failure it ends with the connection

// CatchUp delivers what is stored now. It tries again while the stream does not answer. Errors: fn's, ctx's, unavailable when there is no
// stream or once the connection is closed.
func (t *tailer[T]) CatchUp(ctx context.Context, fn func(T) error) error {
	return firstRead(ctx, t.conn.nc.IsClosed, t.catchUp, fn)
}

func (t *tailer[T]) catchUp(ctx context.Context, fn func(T) error) error {
	reconnects := t.conn.nc.Stats().Reconnects
	next, err := t.source.read(ctx, t.last+1, fn)
	t.last = max(t.last, next-1)
	if err == nil {
		t.reconnects = reconnects
	}
	return err
}

// Next waits for one live message and delivers it, after those that a full buffer or a broken connection dropped. Errors: fn's,
// ctx's, unavailable, deadline_exceeded.
func (t *tailer[T]) Next(ctx context.Context, fn func(T) error) error {
	if t.conn.nc.Stats().Reconnects != t.reconnects {
		return retryRead(ctx, t.conn.nc.IsClosed, t.catchUp, fn)
	}
	m, err := nextWithin(ctx, t.sub, reconnectCheck)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nats.ErrTimeout):
		return nil // the next call checks for a reconnect
	case errors.Is(err, nats.ErrSlowConsumer):
		return retryRead(ctx, t.conn.nc.IsClosed, t.catchUp, fn)
	default:
		return wrap(err, t.operation)
	}
	seq := parseUint(m.Header.Get(headerSequence))
	if seq <= t.last {
		return nil
	}
	t.last = seq
	if v, ok := t.source.decode(seq, m.Data); ok {
		return fn(v)
	}
	return nil
}
