package events

import (
	"context"
	"time"

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
// the last sequence to read, 0 for all. A chunk that a fault made the writer store twice is passed once. With upTo it waits for a
// replica that lags behind. It returns the sequence after the last one read. Errors: fn's, ctx's, unavailable, deadline_exceeded.
func (r *Reader) ReadLog(ctx context.Context, ref schemas.ProcessRef, stream schemas.Stream, from, upTo uint64, fn func(schemas.Chunk) error) (next uint64, err error) {
	subject, delivered, begin := r.conn.subjects.Log(ref.Tenant, ref.Thread, ref.Process, stream), make(positions), time.Now()
	for {
		next = from
		err = firstRead(ctx, r.conn.bulk.IsClosed, func(ctx context.Context, fn func(schemas.Chunk) error) (err error) {
			next, err = r.conn.readLog(ctx, subject, next, upTo, delivered, fn)
			return err
		}, fn)
		if err != nil || next > upTo || time.Since(begin) > lagTimeout {
			return next, err
		}
		stored, err := r.conn.leaderNext(ctx, r.conn.names.log, subject, next)
		if err != nil || stored == 0 || stored > upTo {
			return next, err
		}
		if err := sleep(ctx, lagWait); err != nil {
			return next, err
		}
		from = next
	}
}

// How long a read waits for a replica that lags behind, and the time between two tries.
const (
	lagTimeout = 5 * time.Second
	lagWait    = 20 * time.Millisecond
)

func (c *Conn) readLog(ctx context.Context, subject string, from, upTo uint64, delivered positions, fn func(schemas.Chunk) error) (next uint64, err error) {
	next = max(from, 1)
	fetchCtx, cancel := context.WithCancel(ctx)
	ahead := make(chan storedMsg, logAhead) // receives the next chunks while fn handles one
	fetched := make(chan error, 1)
	go func() {
		defer close(ahead)
		fetched <- c.fetchLog(fetchCtx, subject, next, upTo, ahead)
	}()
	defer func() {
		cancel()
		for range ahead { // until the goroutine that fills it ends
		}
	}()
	for m := range ahead {
		k, ok := c.subjects.decodeChunk(m.seq, m.subject, m.header, m.data)
		if ok && delivered.skips(&k) {
			again, err := c.storedAgain(ctx, m.subject, m.seq, delivered[keyOf(&k)].end)
			if err != nil {
				return next, err
			}
			ok = !again
		}
		next = m.seq + 1 // it counts as read whatever fn returns
		if ok && delivered.accept(&k) {
			if err := fn(k); err != nil {
				return next, err
			}
		}
	}
	return next, <-fetched
}

func (c *Conn) fetchLog(ctx context.Context, subject string, seq, upTo uint64, ahead chan<- storedMsg) error {
	r, err := c.directReader(c.names.log)
	if err != nil {
		return err
	}
	defer r.close()
	enough, size := false, logBatchFirst
	for more := true; more && !enough; size = min(4*size, logBatch) {
		more, err = r.batch(ctx, directRequest{Seq: seq, NextBy: subject, Batch: size, MaxBytes: logBatchBytes}, func(m storedMsg) error {
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

// storedAgain reports whether a chunk that begins at this offset comes after one that leaves a hole before it. A writer that finds
// a chunk missing stores it and all later chunks again, at most a window of them.
func (c *Conn) storedAgain(ctx context.Context, subject string, after uint64, offset int64) (bool, error) {
	msgs, _, err := c.directGet(ctx, c.names.log, directRequest{Seq: after + 1, NextBy: subject, Batch: 2 * chunkWindow, MaxBytes: readBatchBytes})
	if err != nil {
		return false, err
	}
	for _, m := range msgs {
		if k, ok := c.subjects.decodeChunk(m.seq, m.subject, m.header, m.data); ok && k.Offset == offset {
			return true, nil
		}
	}
	return false, nil
}

// positions is how far a reader has read each stream.
type positions map[streamKey]position

type streamKey struct {
	thread, process string
	stream          schemas.Stream
}

type position struct {
	end   int64
	epoch uint64
}

func keyOf(k *schemas.Chunk) streamKey { return streamKey{k.Thread, k.Process, k.Stream} }

// rerun reports that a chunk is the first of a second run of the process, which has a newer epoch.
func (p position) rerun(k *schemas.Chunk) bool { return k.Offset == 0 && k.Epoch > p.epoch }

// skips reports whether there is a hole between the last chunk delivered and this one.
func (p positions) skips(k *schemas.Chunk) bool {
	at, ok := p[keyOf(k)]
	return ok && k.Offset > at.end
}

// accept reports whether a chunk has new output, and cuts off what was delivered before.
func (p positions) accept(k *schemas.Chunk) bool {
	at, ok := p[keyOf(k)]
	if ok && !at.rerun(k) && k.Offset < at.end {
		if k.End() <= at.end {
			return false
		}
		k.Data = k.Data[at.end-k.Offset:]
		k.Offset = at.end
	}
	p[keyOf(k)] = position{k.End(), k.Epoch}
	return true
}
