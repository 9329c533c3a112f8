package events

import "context"

// tailer delivers what a stream stores on a subject, in order and each message once: live while the copies follow each other, else from
// the stream. It is for one goroutine.
type tailer[T any] struct {
	copies
	source source[T]
	next   uint64 // the sequence after the last message; 0 before the first one of a tailer that begins anywhere
}

// source is the stream that a tailer follows.
type source[T any] struct {
	stream, subject string // of what is stored
	// read passes what is stored at or after a sequence to fn, and returns the sequence after the last one.
	read func(ctx context.Context, from uint64, fn func(T) error) (next uint64, err error)
	// decode returns false for a message that is not of this contract.
	decode func(seq uint64, data []byte) (T, bool)
}

// newTailer subscribes to the live copies of a source; from is the sequence to begin at, 0 for that of the first copy.
func newTailer[T any](c *Conn, operation, live string, from uint64, src source[T]) (*tailer[T], error) {
	t := &tailer[T]{source: src, next: from, copies: copies{
		reader: &c.streamReader, nc: c.nc, stream: src.stream, subject: src.subject, operation: operation,
	}}
	if err := t.open(live); err != nil {
		return nil, err
	}
	return t, nil
}

// CatchUp delivers what is stored now. It tries again while the stream does not answer. Errors: fn's, ctx's, unavailable when there is no
// stream or once the connection is closed.
func (t *tailer[T]) CatchUp(ctx context.Context, fn func(T) error) error {
	return firstRead(ctx, t.nc.IsClosed, t.catchUp, fn)
}

func (t *tailer[T]) catchUp(ctx context.Context, fn func(T) error) error {
	return t.copies.catchUp(func() error {
		next, err := t.source.read(ctx, t.next, fn)
		t.next = max(t.next, next)
		return err
	})
}

// Next waits for one live message and delivers it, or delivers from the stream what has no live copy. It waits while the server is down.
// Errors: fn's, ctx's, unavailable once the connection is closed.
func (t *tailer[T]) Next(ctx context.Context, fn func(T) error) error {
	for {
		if t.behind {
			return retryRead(ctx, t.nc.IsClosed, t.catchUp, fn)
		}
		m, err := t.wait(ctx, t.next)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		seq := parseUint(m.Header.Get(headerSequence))
		if t.next > 0 && seq > t.next {
			// Between the two are messages on other subjects, or ones whose copies are missing or late: only the stream knows.
			t.behind = true
			continue
		}
		if seq < t.next {
			continue
		}
		t.next = seq + 1
		if v, ok := t.source.decode(seq, m.Data); ok {
			return fn(v)
		}
	}
}
