package events

import (
	"context"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Headers of a chunk of output.
const (
	headerChunk  = "Sluice-Chunk"  // the chunk's number within the process, from 1
	headerOffset = "Sluice-Offset" // the bytes of its stream before it
	headerEpoch  = "Sluice-Epoch"  // the session's epoch that wrote it
)

// Chunk is a piece of a process's output as LOG keeps it.
type Chunk struct {
	// Seq is its place in the LOG stream: it orders stdout against stderr.
	Seq uint64
	// Process and Thread say whose output it is.
	Thread, Process string
	// Stream is stdout or stderr.
	Stream schemas.Stream
	// Offset is the number of bytes of its stream before it.
	Offset int64
	// Data is the output itself, valid until the callback it was given to returns. It comes from inside a sandbox:
	// hostile to terminals and parsers.
	Data []byte
}

// End is the offset after the chunk's last byte.
func (c *Chunk) End() int64 { return c.Offset + int64(len(c.Data)) }

// chunkOf reads a chunk from a message of LOG or its live copy.
func (s Subjects) chunkOf(seq uint64, subject string, header nats.Header, data []byte) (Chunk, bool) {
	tail, ok := strings.CutPrefix(subject, s.root+".")
	if !ok {
		return Chunk{}, false
	}
	t := strings.Split(tail, ".")
	if len(t) != 5 {
		return Chunk{}, false
	}
	offset, err := strconv.ParseInt(header.Get(headerOffset), 10, 64)
	if err != nil || offset < 0 {
		return Chunk{}, false
	}
	return Chunk{Seq: seq, Thread: t[2], Process: t[3], Stream: schemas.Stream(t[4]), Offset: offset, Data: data}, true
}

// Bounds of one read: as many chunks as keep a reader busy while the next batch is on its way, and no more memory than
// a slow machine can spare.
const (
	readBatch      = 64
	readBatchBytes = 8 << 20
)

// ReadLog reads stored output from a sequence on, in order, and gives each chunk to fn; subject is one of
// [Subjects.ProcessLog] or [Subjects.Log], upTo the last sequence to read or 0 for all there is. It returns the sequence after the last
// one read. An error of fn ends it and is returned as it is; else unavailable or deadline_exceeded.
func (c *Conn) ReadLog(ctx context.Context, subject string, from, upTo uint64, fn func(Chunk) error) (next uint64, err error) {
	type batch struct {
		msgs []storedMsg
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	ahead := make(chan batch) // one batch is fetched while the one before is worked on
	done := make(chan struct{})
	go func() {
		defer close(done)
		seq := max(from, 1)
		for {
			msgs, err := c.directGet(ctx, c.names.log, directRequest{Seq: seq, NextBy: subject, Batch: readBatch, MaxBytes: readBatchBytes, UpToSeq: upTo})
			if len(msgs) > 0 {
				seq = msgs[len(msgs)-1].seq + 1
			}
			select {
			case ahead <- batch{msgs, err}:
			case <-ctx.Done():
				return
			}
			if err != nil || len(msgs) == 0 || (upTo > 0 && seq > upTo) {
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-done
	}()
	next = max(from, 1)
	for {
		var b batch
		select {
		case b = <-ahead:
		case <-done:
			return next, ctx.Err()
		}
		if b.err != nil {
			return next, b.err
		}
		if len(b.msgs) == 0 {
			return next, nil
		}
		for i := range b.msgs {
			m := &b.msgs[i]
			if upTo > 0 && m.seq > upTo {
				return next, nil
			}
			if chunk, ok := c.Subjects.chunkOf(m.seq, m.subject, m.header, m.data); ok {
				if err := fn(chunk); err != nil {
					return next, err
				}
			}
			next = m.seq + 1
		}
		if upTo > 0 && next > upTo {
			return next, nil
		}
	}
}

// Stored says what LOG has of a process: where it stands (nil for nothing) and how many bytes of each stream. Errors:
// unavailable, deadline_exceeded.
func (c *Conn) Stored(ctx context.Context, tenant, thread, process string) (rng *schemas.LogRange, stdout, stderr int64, err error) {
	all := c.Subjects.ProcessLog(tenant, thread, process)
	last, err := c.directGet(ctx, c.names.log, directRequest{MultiLast: []string{all}})
	if err != nil || len(last) == 0 {
		return nil, 0, 0, err
	}
	first, err := c.directGet(ctx, c.names.log, directRequest{Seq: 1, NextBy: all, Batch: 1})
	if err != nil || len(first) == 0 {
		return nil, 0, 0, err
	}
	rng = &schemas.LogRange{FirstSeq: first[0].seq}
	for _, m := range last {
		k, ok := c.Subjects.chunkOf(m.seq, m.subject, m.header, m.data)
		if !ok {
			continue
		}
		rng.LastSeq = max(rng.LastSeq, k.Seq)
		rng.Chunks = max(rng.Chunks, int64(parseUint(m.header.Get(headerChunk))))
		if k.Stream == schemas.Stderr {
			stderr = k.End()
		} else {
			stdout = k.End()
		}
	}
	return rng, stdout, stderr, nil
}
