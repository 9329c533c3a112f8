package events

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Logs stores the output of processes in LOG, and reads it back for a worker.
type Logs struct{ conn *Conn }

// Open starts to store the output of a process. onStored is called in order from one goroutine, with the offset up to which a
// stream is stored; it may be nil.
func (l *Logs) Open(ref schemas.ProcessRef, onStored func(schemas.Stream, int64)) *LogWriter {
	if onStored == nil {
		onStored = func(schemas.Stream, int64) {}
	}
	return &LogWriter{conn: l.conn, lease: l.conn.lease.Load(), ref: ref, onStored: onStored, retryFor: storeTimeout}
}

// StoredOutput is what LOG has of a process.
type StoredOutput struct {
	// Range is the range of its newest run; nil for nothing.
	Range *schemas.LogRange

	output outputParts // of all runs: they have one budget
}

// Resume is Open for a process whose output was stored in part by an earlier writer. after is what [Logs.Replay] returned, nil for
// nothing. The ref must have the epoch under which the process was started, so that readers see one output. onDropped is called with
// the bytes of a stream that were dropped because LOG has more of the process than its budget; it may be nil.
func (l *Logs) Resume(ref schemas.ProcessRef, after *StoredOutput, onStored func(schemas.Stream, int64), onDropped func(stream schemas.Stream, from, to int64)) *LogWriter {
	w := l.Open(ref, onStored)
	w.onDropped = onDropped
	if after == nil {
		return w
	}
	w.output = after.output
	if rng := after.Range; rng != nil {
		w.rng, w.number = *rng, rng.Chunks
		w.acked.Store(rng.Chunks)
		w.output.dropped = [2]int64{rng.StdoutFrom, rng.StderrFrom}
		w.output.reported = w.output.dropped
	}
	return w
}

// Replay passes everything that LOG has of one run of a process to fn, in the order of each stream, and returns what LOG has. It skips
// the output of an earlier run, which has an older epoch. A chunk after a hole is passed with its offset. Range counts chunks by their
// highest number, which can exceed their count when a fault made the writer store some twice. Errors: fn's, ctx's, unavailable,
// deadline_exceeded.
func (l *Logs) Replay(ctx context.Context, ref schemas.ProcessRef, fn func(schemas.Chunk) error) (*StoredOutput, error) {
	var rng *schemas.LogRange
	var output outputParts
	limit := l.conn.budget.ofProcess()
	from := make(map[schemas.Stream]int64, 2)
	reader := newLogReader(l.conn, ref, "", 0)
	reader.ended = true // by this run of its writer
	err := reader.readNow(ctx, func(k schemas.Chunk) error {
		seq := k.Seq
		if k.Epoch != ref.Epoch {
			seq = 0
		}
		if limit > 0 {
			output.add(nil, seq, k.Stream, chunkSize(ref, k.Data), limit)
		}
		if k.Epoch != ref.Epoch {
			return nil
		}
		if rng == nil {
			rng = &schemas.LogRange{FirstSeq: k.Seq}
		}
		rng.LastSeq, rng.Chunks = max(rng.LastSeq, k.Seq), max(rng.Chunks, k.Number)
		if _, ok := from[k.Stream]; !ok {
			from[k.Stream] = k.Offset
			rng.StdoutFrom, rng.StderrFrom = from[schemas.Stdout], from[schemas.Stderr]
		}
		return fn(k)
	})
	if err != nil {
		return nil, err
	}
	return &StoredOutput{Range: rng, output: output}, nil
}

// Stored returns the range of a process's output in LOG, nil for nothing, and the bytes of each stream, from the leader: the record of
// a lost process says so for good. Errors: unavailable, deadline_exceeded.
func (l *Logs) Stored(ctx context.Context, tenant, thread, process string) (rng *schemas.LogRange, stdout, stderr int64, err error) {
	c := l.conn
	first, err := c.leaderSeq(ctx, c.names.log, directRequest{Seq: 1, NextBy: c.subjects.Log(tenant, thread, process, "")})
	if err != nil || first == 0 {
		return nil, 0, 0, err
	}
	rng = &schemas.LogRange{FirstSeq: first}
	for _, s := range schemas.Streams() {
		m, err := c.leaderLast(ctx, c.names.log, c.subjects.Log(tenant, thread, process, s))
		if err != nil {
			return nil, 0, 0, err
		}
		if m == nil {
			continue
		}
		k, ok := c.subjects.decodeChunk(m.seq, m.subject, m.header, m.data)
		if !ok {
			continue
		}
		rng.LastSeq, rng.Chunks = max(rng.LastSeq, k.Seq), max(rng.Chunks, k.Number)
		if s == schemas.Stderr {
			stderr = k.End()
		} else {
			stdout = k.End()
		}
	}
	return rng, stdout, stderr, nil
}

// decodeChunk reads a chunk from a message of LOG or its live copy.
func (s Subjects) decodeChunk(seq uint64, subject string, header nats.Header, data []byte) (schemas.Chunk, bool) {
	tail, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return schemas.Chunk{}, false
	}
	t := strings.Split(tail, ".")
	if len(t) != 5 || (t[4] != string(schemas.Stdout) && t[4] != string(schemas.Stderr)) {
		return schemas.Chunk{}, false
	}
	offset, err := strconv.ParseInt(header.Get(headerOffset), 10, 64)
	if err != nil || offset < 0 || offset > math.MaxInt64-int64(len(data)) {
		return schemas.Chunk{}, false
	}
	k := schemas.Chunk{Seq: seq, Thread: t[2], Process: t[3], Stream: schemas.Stream(t[4]), Offset: offset, Data: data}
	k.Number, _ = strconv.ParseInt(header.Get(headerChunk), 10, 64) // 0 is never the next number: the reader then reads LOG
	k.Epoch = parseUint(header.Get(headerEpoch))
	k.Time, _ = time.Parse(time.RFC3339Nano, header.Get(headerTimestamp)) // zero for none
	return k, true
}
