package events

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// errHole reports that the next chunk is missing, and may still be stored.
var errHole = errors.New("a chunk of output is not stored yet")

// holeTimeout is the time after which no writer fills a hole: a worker that was killed has ten minutes to return and store the output again.
const holeTimeout = 15 * time.Minute

// positions is how far a reader has read each stream.
type positions map[schemas.Stream]position

type position struct {
	end   int64
	epoch uint64
	seq   uint64
}

// end is the offset at which the output of a stream goes on in the run of a chunk. It is unknown before the first chunk of a reader
// that does not begin at the beginning.
func (l *logReader) end(k *schemas.Chunk) (end int64, known bool) {
	at, ok := l.delivered[k.Stream]
	if ok && k.Epoch <= at.epoch {
		return at.end, true
	}
	return 0, ok || l.begin // a second run has a newer epoch
}

// place finds the position of a reader that goes on where another has stopped: after the chunk just before its first one. Without it a
// first chunk that follows a hole would be passed, and the missing one, which is stored later, left out. Errors: those of leaderGet.
func (l *logReader) place(ctx context.Context, first *schemas.Chunk) error {
	if l.before == 0 || first.Number <= 1 {
		return nil
	}
	m, err := l.conn.leaderGet(ctx, l.conn.names.log, directRequest{Seq: l.before})
	if err != nil {
		return err
	}
	l.before = 0
	if m == nil {
		return nil // dropped
	}
	k, ok := l.conn.subjects.decodeChunk(m.seq, m.subject, m.header, m.data)
	of := func(s schemas.Stream) string {
		return l.conn.subjects.Log(l.ref.Tenant, l.ref.Thread, l.ref.Process, s)
	}
	if ok && m.subject == of(k.Stream) && (l.subject == m.subject || l.subject == of("")) {
		l.accept(&k)
	}
	return nil
}

// skips reports whether there is a hole before a chunk which the process itself has not made: the numbers have one too.
func (l *logReader) skips(k *schemas.Chunk) bool {
	if end, known := l.end(k); known {
		return k.Offset > end && !l.follows(k)
	}
	return l.number > 0 && k.Epoch == l.epoch && k.Number > l.number+1
}

// fills reports whether a chunk that is stored later has what is missing before k, so that k comes again after it.
func (l *logReader) fills(later, k *schemas.Chunk) bool {
	if later.Stream != k.Stream || later.Epoch != k.Epoch {
		return false
	}
	if _, known := l.end(k); known {
		return l.continues(later)
	}
	return later.Offset < k.Offset
}

// follows reports whether a chunk is the next one by its number.
func (l *logReader) follows(k *schemas.Chunk) bool {
	return k.Number == l.number+1 && (k.Epoch == l.epoch || l.number == 0)
}

// continues reports whether a chunk has the output after what was passed.
func (l *logReader) continues(k *schemas.Chunk) bool {
	end, known := l.end(k)
	return !known || (k.Offset <= end && end < k.End())
}

// accept reports whether a chunk has new output, and cuts off what was passed before.
func (l *logReader) accept(k *schemas.Chunk) bool {
	l.number, l.epoch = k.Number, k.Epoch
	if end, known := l.end(k); known && k.Offset < end {
		if k.End() <= end {
			return false
		}
		k.Data = k.Data[end-k.Offset:]
		k.Offset = end
	}
	l.delivered[k.Stream] = position{k.End(), k.Epoch, k.Seq}
	return true
}

// resolve decides about a chunk that comes after a hole. A writer that finds a chunk missing stores it and all later chunks again: the
// chunk then comes again too. Errors: errHole while the missing chunk may still be stored, ctx's, unavailable, deadline_exceeded.
func (l *logReader) resolve(ctx context.Context, m *storedMsg, k *schemas.Chunk) (again bool, err error) {
	const most = 3 * chunkWindow
	c := l.conn
	msgs, _, err := c.directGet(ctx, c.names.log, directRequest{Seq: k.Seq + 1, NextBy: l.subject, Batch: most, MaxBytes: logBatchBytes})
	if err != nil {
		return false, err
	}
	last := k.Seq
	if wasStored(m, k.Number-1) {
		return false, nil
	}
	for _, m := range msgs {
		last = m.seq
		later, ok := c.subjects.decodeChunk(m.seq, m.subject, m.header, m.data)
		if ok && l.fills(&later, k) {
			return true, nil
		}
		if ok && later.Epoch == k.Epoch && wasStored(&m, k.Number-1) {
			return false, nil
		}
		// A writer has at most a window of chunks that may be missing, also one that goes on from the window of a dead one.
		if ok && (later.Epoch > k.Epoch || later.Number >= k.Number+2*chunkWindow) {
			return false, nil
		}
	}
	if len(msgs) == most {
		return false, nil
	}
	// The replica may lag behind.
	if stored, err := c.leaderSeq(ctx, c.names.log, directRequest{Seq: last + 1, NextBy: l.subject}); err != nil || stored != 0 {
		return false, errors.Join(err, errHole)
	}
	if l.ended || l.tooOld(m) {
		return false, nil
	}
	dropped, err := l.dropped(ctx, k)
	if err == nil && !dropped {
		err = errHole
	}
	return false, err
}

// wasStored reports whether LOG had all chunks up to a number when a chunk of their run was sent. The missing ones were dropped since.
func wasStored(m *storedMsg, number int64) bool {
	stored, err := strconv.ParseInt(m.header.Get(headerStored), 10, 64)
	return err == nil && stored >= number
}

// tooOld reports whether the process had all the time to fill the hole before a message.
func (l *logReader) tooOld(m *storedMsg) bool {
	at, err := time.Parse(time.RFC3339Nano, m.header.Get(headerTimestamp))
	return err == nil && time.Since(at) > holeTimeout
}

// dropped reports whether the hole is there because LOG has dropped the oldest output.
func (l *logReader) dropped(ctx context.Context, k *schemas.Chunk) (bool, error) {
	at, ok := l.delivered[k.Stream]
	if !ok || k.Epoch > at.epoch {
		return l.number == 0 && k.Number > chunkWindow, nil // the writer had the first chunk stored
	}
	subject := l.conn.subjects.Log(l.ref.Tenant, l.ref.Thread, l.ref.Process, k.Stream)
	first, err := l.conn.leaderSeq(ctx, l.conn.names.log, directRequest{Seq: 1, NextBy: subject})
	return first > at.seq, err
}
