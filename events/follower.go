package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// followBuffer is how much live output waits in memory for a slow reader, in bytes. The subscription drops what exceeds it, and the
// reader reads it from LOG later.
const followBuffer = 32 << 20

// reconnectCheck is how often a follower without live messages checks whether its connection was down.
const reconnectCheck = time.Second

// Follower delivers a process's output as it is stored, in order and without holes: live while it keeps up, from LOG when it joined
// late or fell behind. It is for one goroutine.
type Follower struct {
	conn *Conn
	ref  schemas.ProcessRef
	sub  *nats.Subscription

	seq       uint64 // of the last chunk delivered, or of the one before the first to deliver
	number    int64  // number and epoch of that chunk: its successor is delivered without a read of LOG
	epoch     uint64
	delivered positions

	reconnects uint64 // the connection's reconnects when LOG last had nothing unread
	behind     bool   // LOG has chunks that were missed
}

// FollowLog subscribes to the output of a process, so that no later chunk is missed. from is the LOG sequence to begin at; 0 and 1
// are the beginning. Errors: unavailable.
func (r *Reader) FollowLog(ref schemas.ProcessRef, from uint64) (*Follower, error) {
	c := r.conn
	sub, err := c.bulk.SubscribeSync(c.subjects.Tail(ref.Tenant, ref.Thread, ref.Process))
	if err != nil {
		return nil, wrap(err, "follow process "+ref.Process)
	}
	if err := sub.SetPendingLimits(-1, followBuffer); err != nil {
		return nil, wrap(err, "follow process "+ref.Process)
	}
	f := &Follower{conn: c, ref: ref, sub: sub, delivered: make(positions, 2), reconnects: c.bulk.Stats().Reconnects}
	if from > 0 {
		f.seq = from - 1
	}
	return f, nil
}

// Close ends the subscription.
func (f *Follower) Close() { _ = f.sub.Unsubscribe() } // on failure it ends with the connection

// Flush returns once the server has the subscription. Errors: unavailable, deadline_exceeded.
func (f *Follower) Flush(ctx context.Context) error {
	return wrap(flush(ctx, f.conn.bulk), "follow process "+f.ref.Process)
}

// CatchUp delivers what LOG has now. It tries again while LOG does not answer. Errors: fn's, ctx's, unavailable without a stream LOG or
// once the connection is closed.
func (f *Follower) CatchUp(ctx context.Context, fn func(schemas.Chunk) error) error {
	return firstRead(ctx, f.conn.bulk.IsClosed, f.catchUp, fn)
}

func (f *Follower) catchUp(ctx context.Context, fn func(schemas.Chunk) error) error {
	// Until it succeeds, LOG may have chunks that no live chunk points to.
	f.behind = true
	reconnects := f.conn.bulk.Stats().Reconnects
	next, err := f.conn.readLog(ctx, f.conn.subjects.Log(f.ref.Tenant, f.ref.Thread, f.ref.Process, ""), f.seq+1, 0, f.delivered, func(k schemas.Chunk) error {
		f.number, f.epoch = k.Number, k.Epoch
		return fn(k)
	})
	f.seq = max(f.seq, next-1)
	if err == nil {
		f.behind, f.reconnects = false, reconnects
	}
	return err
}

// Next waits for one live chunk and delivers it, after the chunks that a full buffer or a broken connection dropped before it. It
// waits while the server is down. Errors: fn's, ctx's, unavailable once the connection is closed.
func (f *Follower) Next(ctx context.Context, fn func(schemas.Chunk) error) error {
	for {
		if f.behind {
			return retryRead(ctx, f.conn.bulk.IsClosed, f.catchUp, fn)
		}
		m, err := nextWithin(ctx, f.sub, reconnectCheck)
		switch {
		case err == nil:
			return f.deliver(m, fn)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrSlowConsumer):
			f.behind = true
		case errors.Is(err, nats.ErrTimeout):
			// Chunks stored while the connection was down were not delivered.
			f.behind = f.conn.bulk.Stats().Reconnects != f.reconnects
		default:
			return wrap(err, "follow process "+f.ref.Process)
		}
	}
}

// deliver delivers a live chunk, or sets behind when LOG has an earlier one.
func (f *Follower) deliver(m *nats.Msg, fn func(schemas.Chunk) error) error {
	k, ok := f.conn.subjects.decodeChunk(parseUint(m.Header.Get(headerSequence)), m.Header.Get(headerSubject), m.Header, m.Data)
	if !ok || k.Seq <= f.seq {
		return nil
	}
	// The number orders stdout against stderr. The server's header names the sequence before this one.
	follows := k.Number == f.number+1 && (k.Epoch == f.epoch || f.number == 0)
	if !follows || parseUint(m.Header.Get(headerLastSequence)) > f.seq || f.delivered.skips(&k) {
		f.behind = true // LOG has this chunk too
		return nil
	}
	f.seq, f.number, f.epoch = k.Seq, k.Number, k.Epoch
	if !f.delivered.accept(&k) {
		return nil
	}
	return fn(k)
}

// finishTimeout is how long Finish waits for live chunks before it reads LOG: they usually have arrived.
const finishTimeout = 100 * time.Millisecond

// Finish delivers the rest of the output of a process that has ended. Errors are those of Next.
func (f *Follower) Finish(ctx context.Context, r *schemas.Result, fn func(schemas.Chunk) error) error {
	for !f.complete(r) {
		wait, cancel := context.WithTimeout(ctx, finishTimeout)
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

// complete reports whether everything that LOG has of the process was delivered.
func (f *Follower) complete(r *schemas.Result) bool {
	return r.Log == nil || f.seq >= r.Log.LastSeq
}
