package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// followBuffer is how much live output may wait in memory for a slow reader. What comes on top is dropped here, and read
// from LOG when its turn comes: a slow reader delays nobody and loses nothing.
const followBuffer = 32 << 20

// Follower reads a process's output as it is stored, in order and without holes: live while it keeps up, from LOG where it
// joined late or fell behind. It is for one goroutine.
type Follower struct {
	conn    *Conn
	ref     ProcessRef
	sub     *nats.Subscription
	streams map[schemas.Stream]*position
}

// position is how far a follower has come in one stream.
type position struct {
	seq uint64 // the last chunk delivered, or the one before the first wanted
	end int64  // the offset after it
}

// Follow begins to listen: from now on no chunk of the process can be missed. from is the LOG sequence to begin at; 0 or 1 is the
// beginning. Errors: unavailable.
func (c *Conn) Follow(ref ProcessRef, from uint64) (*Follower, error) {
	sub, err := c.bulk.SubscribeSync(c.Subjects.Tail(ref.Tenant, ref.Thread, ref.Process))
	if err != nil {
		return nil, wrap(err, "follow process "+ref.Process)
	}
	if err := sub.SetPendingLimits(-1, followBuffer); err != nil {
		return nil, wrap(err, "follow process "+ref.Process)
	}
	before := uint64(0)
	if from > 0 {
		before = from - 1
	}
	f := &Follower{conn: c, ref: ref, sub: sub, streams: make(map[schemas.Stream]*position, 2)}
	for _, s := range []schemas.Stream{schemas.Stdout, schemas.Stderr} {
		f.streams[s] = &position{seq: before}
	}
	return f, nil
}

// Close ends the subscription.
func (f *Follower) Close() { _ = f.sub.Unsubscribe() } // should it fail, it ends with the connection

// Flush returns once the server knows of the subscription. Errors: unavailable, deadline_exceeded.
func (f *Follower) Flush(ctx context.Context) error {
	return wrap(flush(ctx, f.conn.bulk), "follow process "+f.ref.Process)
}

// CatchUp delivers what LOG has now. Errors are fn's, unavailable or deadline_exceeded.
func (f *Follower) CatchUp(ctx context.Context, fn func(Chunk) error) error {
	from := f.streams[schemas.Stdout].seq
	if s := f.streams[schemas.Stderr].seq; s < from {
		from = s
	}
	_, err := f.conn.ReadLog(ctx, f.conn.Subjects.ProcessLog(f.ref.Tenant, f.ref.Thread, f.ref.Process), from+1, 0, func(k Chunk) error {
		return f.deliver(k, fn)
	})
	return err
}

// Next waits for one live chunk and delivers it, after any that were missed before it. Errors are fn's, ctx's, unavailable
// or deadline_exceeded.
func (f *Follower) Next(ctx context.Context, fn func(Chunk) error) error {
	m, err := f.sub.NextMsgWithContext(ctx)
	if errors.Is(err, nats.ErrSlowConsumer) {
		return nil // the next chunk that comes shows the gap
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return wrap(err, "follow process "+f.ref.Process)
	}
	k, ok := f.conn.Subjects.chunkOf(parseUint(m.Header.Get(headerSequence)), m.Header.Get(headerSubject), m.Header, m.Data)
	if !ok {
		return nil
	}
	pos := f.streams[k.Stream]
	if pos == nil || k.Seq <= pos.seq {
		return nil
	}
	// The server says which message of this stream came before: anything between is missing here.
	if before := parseUint(m.Header.Get(headerLastSequence)); before > pos.seq {
		if err := f.fill(ctx, k.Stream, before, fn); err != nil {
			return err
		}
	}
	return f.deliver(k, fn)
}

func (f *Follower) fill(ctx context.Context, stream schemas.Stream, upTo uint64, fn func(Chunk) error) error {
	_, err := f.conn.ReadLog(ctx, f.conn.Subjects.Log(f.ref.Tenant, f.ref.Thread, f.ref.Process, stream), f.streams[stream].seq+1, upTo, func(k Chunk) error {
		return f.deliver(k, fn)
	})
	return err
}

func (f *Follower) deliver(k Chunk, fn func(Chunk) error) error {
	pos := f.streams[k.Stream]
	if pos == nil || k.Seq <= pos.seq {
		return nil
	}
	pos.seq, pos.end = k.Seq, k.End()
	return fn(k)
}

// finishPatience is how long Finish waits for live chunks before it reads them from LOG: they are usually here already.
const finishPatience = 100 * time.Millisecond

// Finish delivers what is left of a process that has ended. Errors are those of Next.
func (f *Follower) Finish(ctx context.Context, r *schemas.Result, fn func(Chunk) error) error {
	for !f.complete(r) {
		wait, cancel := context.WithTimeout(ctx, finishPatience)
		err := f.Next(wait, fn)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return f.CatchUp(ctx, fn)
		default:
			return err
		}
	}
	return nil
}

// complete says whether everything the process printed was delivered, or nothing of it is in LOG.
func (f *Follower) complete(r *schemas.Result) bool {
	if r.Log == nil {
		return true
	}
	out, err := f.streams[schemas.Stdout], f.streams[schemas.Stderr]
	last := max(out.seq, err.seq)
	return last >= r.Log.LastSeq && out.end >= r.StdoutBytes && err.end >= r.StderrBytes
}
