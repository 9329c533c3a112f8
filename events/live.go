package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// live reads a stream's copies as they are stored, and what it missed from the stream itself. It is for one goroutine.
type live[T any] struct {
	conn  *Conn
	doing string // for errors
	sub   *nats.Subscription
	from  source[T]
	last  uint64
	line  uint64 // the connection's count of reconnects when the stream was last known to hold nothing unseen
}

// source is the stream that is listened to.
type source[T any] struct {
	// read gives what is stored from a sequence on to fn, and returns the sequence after the last one.
	read func(ctx context.Context, from uint64, fn func(T) error) (next uint64, err error)
	// decode is false for what is none of this contract's, and of no use to a reader.
	decode func(seq uint64, data []byte) (T, bool)
}

func listen[T any](c *Conn, doing, subject string, from uint64, of source[T]) (*live[T], error) {
	sub, err := c.nc.SubscribeSync(subject)
	if err != nil {
		return nil, wrap(err, doing)
	}
	if err := sub.SetPendingLimits(-1, followBuffer); err != nil {
		return nil, wrap(err, doing)
	}
	l := &live[T]{conn: c, doing: doing, sub: sub, from: of, line: c.nc.Stats().Reconnects}
	if from > 0 {
		l.last = from - 1
	}
	return l, nil
}

// Close ends the subscription.
func (l *live[T]) Close() { _ = l.sub.Unsubscribe() } // should it fail, it ends with the connection

// CatchUp delivers what the stream has now. Errors are fn's, unavailable or deadline_exceeded.
func (l *live[T]) CatchUp(ctx context.Context, fn func(T) error) error {
	line := l.conn.nc.Stats().Reconnects
	next, err := l.from.read(ctx, l.last+1, fn)
	l.last = max(l.last, next-1)
	if err == nil {
		l.line = line
	}
	return err
}

// Next waits for one live message and delivers it, after reading any that a full buffer or a broken connection made it miss.
// Errors are fn's, ctx's, unavailable or deadline_exceeded.
func (l *live[T]) Next(ctx context.Context, fn func(T) error) error {
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
		return wrap(err, l.doing)
	}
	seq := parseUint(m.Header.Get(headerSequence))
	if seq <= l.last {
		return nil
	}
	l.last = seq
	if v, ok := l.from.decode(seq, m.Data); ok {
		return fn(v)
	}
	return nil
}

// makeUp is CatchUp with patience: a server that has just come back may not read its streams yet.
func (l *live[T]) makeUp(ctx context.Context, fn func(T) error) error {
	for {
		err := l.CatchUp(ctx, func(v T) error { return callersOwn(fn(v)) })
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
