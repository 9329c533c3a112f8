package events

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// Bounds of one request for events or chunks: no more memory than a slow machine can spare.
const (
	readBatch      = 64
	readBatchBytes = 8 << 20
)

// Bounds of one request of a whole log. It is larger, since the reader waits for a round trip after each; what was asked
// for and not yet read waits in memory.
const (
	logBatch      = 192
	logBatchBytes = 24 << 20
	logAhead      = 16 // chunks that are decoded before they are asked for
)

// ReadLog reads stored output from a sequence on, in order, and gives each chunk to fn; subject is one of
// [Subjects.ProcessLog] or [Subjects.Log], upTo the last sequence to read or 0 for all there is. What LOG has twice, because a
// fault left it open whether it was stored, is told once. It returns the sequence after the last one read. An error of fn
// ends it and is returned as it is; else ctx's, unavailable or deadline_exceeded.
func (c *Conn) ReadLog(ctx context.Context, subject string, from, upTo uint64, fn func(schemas.Chunk) error) (next uint64, err error) {
	return c.readLog(ctx, subject, from, upTo, make(ends), fn)
}

func (c *Conn) readLog(ctx context.Context, subject string, from, upTo uint64, told ends, fn func(schemas.Chunk) error) (next uint64, err error) {
	next = max(from, 1)
	fetchCtx, cancel := context.WithCancel(ctx)
	ahead := make(chan storedMsg, logAhead) // what comes is received while what came is worked on
	fetched := make(chan error, 1)
	go func() {
		defer close(ahead)
		fetched <- c.fetchLog(fetchCtx, subject, next, upTo, ahead)
	}()
	defer func() {
		cancel()
		for range ahead { // until the goroutine that fills it has gone
		}
	}()
	for m := range ahead {
		k, ok := c.Subjects.chunkOf(m.seq, m.subject, m.header, m.data)
		if ok && told.skips(&k) {
			again, err := c.storedAgain(ctx, m.subject, m.seq, told[keyOf(&k)].end)
			if err != nil {
				return next, err
			}
			ok = !again
		}
		next = m.seq + 1 // from here on it counts as read, whatever fn makes of it
		if ok && told.accept(&k) {
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
	enough := false
	for more := true; more && !enough; {
		more, err = r.batch(ctx, directRequest{Seq: seq, NextBy: subject, Batch: logBatch, MaxBytes: logBatchBytes}, func(m storedMsg) error {
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

// storedAgain says whether a chunk that begins at this offset stands behind one that leaves a hole before it. A writer that
// finds a chunk missing stores it and all that came after it once more, at most a window of them.
func (c *Conn) storedAgain(ctx context.Context, subject string, after uint64, offset int64) (bool, error) {
	msgs, _, err := c.directGet(ctx, c.names.log, directRequest{Seq: after + 1, NextBy: subject, Batch: 2 * chunkWindow, MaxBytes: readBatchBytes})
	if err != nil {
		return false, err
	}
	for _, m := range msgs {
		if k, ok := c.Subjects.chunkOf(m.seq, m.subject, m.header, m.data); ok && k.Offset == offset {
			return true, nil
		}
	}
	return false, nil
}

// ends is how far a reader has come in each stream.
type ends map[endKey]endPos

type endKey struct {
	thread, process string
	stream          schemas.Stream
}

type endPos struct {
	end   int64
	epoch uint64
}

func keyOf(c *schemas.Chunk) endKey { return endKey{c.Thread, c.Process, c.Stream} }

// rerun says that a chunk begins the output anew: a process that may be run twice was, under a newer epoch.
func (p endPos) rerun(k *schemas.Chunk) bool { return k.Offset == 0 && k.Epoch > p.epoch }

// skips says whether a chunk leaves out what comes after the last one told.
func (e ends) skips(k *schemas.Chunk) bool {
	p, ok := e[keyOf(k)]
	return ok && k.Offset > p.end
}

// accept says whether a chunk brings anything new, and cuts off what was told already.
func (e ends) accept(k *schemas.Chunk) bool {
	p, ok := e[keyOf(k)]
	if ok && !p.rerun(k) && k.Offset < p.end {
		if k.End() <= p.end {
			return false
		}
		k.Data = k.Data[p.end-k.Offset:]
		k.Offset = p.end
	}
	e[keyOf(k)] = endPos{k.End(), k.Epoch}
	return true
}

// Stored says what LOG has of a process: where it stands (nil for nothing) and how many bytes of each stream. Errors:
// unavailable, deadline_exceeded.
func (c *Conn) Stored(ctx context.Context, tenant, thread, process string) (rng *schemas.LogRange, stdout, stderr int64, err error) {
	all := c.Subjects.ProcessLog(tenant, thread, process)
	first, _, err := c.directGet(ctx, c.names.log, directRequest{Seq: 1, NextBy: all, Batch: 1})
	if err != nil || len(first) == 0 {
		return nil, 0, 0, err
	}
	rng = &schemas.LogRange{FirstSeq: first[0].seq}
	for _, s := range []schemas.Stream{schemas.Stdout, schemas.Stderr} {
		m, err := c.directLast(ctx, c.names.log, c.Subjects.Log(tenant, thread, process, s))
		if err != nil {
			return nil, 0, 0, err
		}
		if m == nil {
			continue
		}
		k, ok := c.Subjects.chunkOf(m.seq, m.subject, m.header, m.data)
		if !ok {
			continue
		}
		rng.LastSeq = max(rng.LastSeq, k.Seq)
		rng.Chunks = max(rng.Chunks, k.Number)
		if s == schemas.Stderr {
			stderr = k.End()
		} else {
			stdout = k.End()
		}
	}
	return rng, stdout, stderr, nil
}

// passing says whether an error of a read may be over by the next attempt.
func passing(err error) bool {
	return errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)
}
