package events

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// Bounds of one batch of a log. They are larger than those of other reads because the reader waits for a round trip after each
// batch. The unread part of a batch waits in memory.
const (
	logBatchFirst = 16 // a reader of a result may need no more; each further batch is four times as large
	logBatch      = 192
	logBatchBytes = 24 << 20
	logAhead      = 16 // chunks received before the reader asks for them
)

// ReadLog passes the stored output of a process at or after a sequence of LOG to fn, in order. An empty stream means both; upTo is
// the last sequence to read, of a process that has ended; with 0 it reads what is stored now, and stops before output that the process
// may still store. A chunk that a fault made the writer store twice is passed once. It waits for a replica that lags behind. It returns
// the sequence after the last one read. Errors: fn's, ctx's, unavailable, deadline_exceeded.
func (r *Reader) ReadLog(ctx context.Context, ref schemas.ProcessRef, stream schemas.Stream, from, upTo uint64, fn func(schemas.Chunk) error) (next uint64, err error) {
	l := newLogReader(r.conn, ref, stream, from)
	err = firstRead(ctx, r.conn.bulk.IsClosed, func(ctx context.Context, fn func(schemas.Chunk) error) error {
		if upTo > 0 {
			return l.readTo(ctx, upTo, fn)
		}
		return l.readNow(ctx, fn)
	}, fn)
	if errors.Is(err, errHole) {
		err = nil
	}
	return l.next, err
}

// logReader reads the output of one process. It is for one goroutine.
type logReader struct {
	conn    *Conn
	ref     schemas.ProcessRef
	subject string
	ended   bool // nothing more is stored

	begin     bool   // it reads from the beginning: a stream without a position is at 0
	next      uint64 // the sequence after the last message read
	before    uint64 // the sequence before the first message to read, until place has read it; else 0
	number    int64  // number and epoch of the last chunk passed
	epoch     uint64
	delivered positions

	// fromCopies passes what LOG has dropped before a chunk, and live copies still have. nil without copies.
	fromCopies func(before *schemas.Chunk, fn func(schemas.Chunk) error) error
}

func newLogReader(c *Conn, ref schemas.ProcessRef, stream schemas.Stream, from uint64) *logReader {
	return &logReader{
		conn: c, ref: ref, subject: c.subjects.Log(ref.Tenant, ref.Thread, ref.Process, stream),
		begin: from <= 1, next: max(from, 1), before: max(from, 1) - 1, delivered: make(positions, 2),
	}
}

// readTo reads what is stored up to a sequence of a process that has ended.
func (l *logReader) readTo(ctx context.Context, upTo uint64, fn func(schemas.Chunk) error) error {
	l.ended = true
	return l.readUntil(ctx, upTo, upTo, fn)
}

// readNow reads what is stored now. Errors: errHole and those of ReadLog.
func (l *logReader) readNow(ctx context.Context, fn func(schemas.Chunk) error) error {
	last, err := l.conn.leaderSeq(ctx, l.conn.names.log, directRequest{LastBy: l.subject})
	if err != nil || last < l.next {
		return err
	}
	return l.readUntil(ctx, 0, last, fn)
}

// readUntil reads up to a sequence, 0 for all, until it has seen everything up to another one.
func (l *logReader) readUntil(ctx context.Context, upTo, seen uint64, fn func(schemas.Chunk) error) error {
	return l.conn.readUntil(ctx, l.conn.names.log, l.subject, seen, func() (uint64, error) {
		err := l.read(ctx, upTo, fn)
		if l.ended && errors.Is(err, errHole) {
			err = nil // the replica lags behind
		}
		return l.next, err
	})
}

// read reads what one replica has. Errors: errHole and those of ReadLog.
func (l *logReader) read(ctx context.Context, upTo uint64, fn func(schemas.Chunk) error) error {
	fetchCtx, cancel := context.WithCancel(ctx)
	ahead := make(chan storedMsg, logAhead) // receives the next chunks while fn handles one
	fetched := make(chan error, 1)
	go func(from uint64) {
		defer close(ahead)
		fetched <- l.fetch(fetchCtx, from, upTo, ahead)
	}(l.next)
	defer func() {
		cancel()
		for range ahead { // until the goroutine that fills it ends
		}
	}()
	for m := range ahead {
		k, ok := l.conn.subjects.decodeChunk(m.seq, m.subject, m.header, m.data)
		if ok {
			if err := l.place(ctx, &k); err != nil {
				return err
			}
		}
		if ok && l.fromCopies != nil && l.skips(&k) {
			if err := l.fromCopies(&k, fn); err != nil {
				return err
			}
		}
		if ok && l.skips(&k) {
			again, err := l.resolve(ctx, &m, &k)
			if err != nil {
				return err
			}
			ok = !again
		}
		l.next = m.seq + 1 // it counts as read whatever fn returns
		if ok && l.accept(&k) {
			if err := fn(k); err != nil {
				return err
			}
		}
	}
	return <-fetched
}

func (l *logReader) fetch(ctx context.Context, seq, upTo uint64, ahead chan<- storedMsg) error {
	r, err := l.conn.directReader(l.conn.names.log)
	if err != nil {
		return err
	}
	defer r.close()
	enough, size := false, logBatchFirst
	for more := true; more && !enough; size = min(4*size, logBatch) {
		more, err = r.batch(ctx, directRequest{Seq: seq, NextBy: l.subject, Batch: size, MaxBytes: min(logBatchBytes, l.conn.followShare())}, func(m storedMsg) error {
			if enough = enough || (upTo > 0 && m.seq > upTo); enough {
				return nil
			}
			seq = m.seq + 1
			select {
			case ahead <- m:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return err
		}
		enough = enough || (upTo > 0 && seq > upTo)
	}
	return nil
}
