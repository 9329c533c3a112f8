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

// idleChecks is how often at least an idle follower reads LOG, in reconnectChecks: the last live copies are lost when the leader of LOG
// changes.
const idleChecks = 32

// Follower delivers a process's output as it is stored, in order and without holes: live while it keeps up, from LOG when it joined
// late or fell behind. It is for one goroutine.
type Follower struct {
	*logReader
	sub *nats.Subscription

	reconnects uint64    // the connection's reconnects when LOG last had nothing unread
	behind     bool      // LOG has chunks that were missed
	hole       time.Time // when a read last found the next chunk missing; zero when it was there
	idle       int       // reconnectChecks since the last live message
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
	return &Follower{logReader: c.newLogReader(ref, "", from), sub: sub, reconnects: c.bulk.Stats().Reconnects}, nil
}

// Close ends the subscription.
func (f *Follower) Close() { _ = f.sub.Unsubscribe() } // on failure it ends with the connection

// Flush returns once the server has the subscription. Errors: unavailable, deadline_exceeded.
func (f *Follower) Flush(ctx context.Context) error {
	return wrap(flush(ctx, f.conn.bulk), "follow process "+f.ref.Process)
}

// CatchUp delivers what LOG has now, up to a chunk that is missing and may still be stored. It tries again while LOG does not answer.
// Errors: fn's, ctx's, unavailable without a stream LOG or once the connection is closed.
func (f *Follower) CatchUp(ctx context.Context, fn func(schemas.Chunk) error) error {
	return firstRead(ctx, f.conn.bulk.IsClosed, f.catchUpNow, fn)
}

func (f *Follower) catchUpNow(ctx context.Context, fn func(schemas.Chunk) error) error {
	return f.catchUp(func() error { return f.readNow(ctx, fn) })
}

func (f *Follower) catchUp(read func() error) error {
	// Until it succeeds, LOG may have chunks that no live chunk points to.
	f.behind, f.hole = true, time.Time{}
	reconnects := f.conn.bulk.Stats().Reconnects
	err := read()
	if errors.Is(err, errHole) {
		f.hole, err = time.Now(), nil
	}
	if err == nil {
		f.behind, f.reconnects = false, reconnects
	}
	return err
}

// Next waits for one live chunk and delivers it, after the chunks that a full buffer or a broken connection dropped before it. It
// waits while the server is down, and while a chunk is missing that may still be stored. Errors: fn's, ctx's, unavailable once the
// connection is closed.
func (f *Follower) Next(ctx context.Context, fn func(schemas.Chunk) error) error {
	for {
		if f.behind || (!f.hole.IsZero() && time.Since(f.hole) > reconnectCheck) {
			return retryRead(ctx, f.conn.bulk.IsClosed, f.catchUpNow, fn)
		}
		m, err := nextWithin(ctx, f.sub, reconnectCheck)
		switch {
		case err == nil:
			f.idle = 0
			return f.deliver(m, fn)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrSlowConsumer):
			f.behind = true
		case errors.Is(err, nats.ErrTimeout):
			// Chunks stored while the connection was down were not delivered.
			f.behind = f.conn.bulk.Stats().Reconnects != f.reconnects || f.missed(ctx)
		default:
			return wrap(err, "follow process "+f.ref.Process)
		}
	}
}

// missed reports whether LOG has chunks of which no live copy came. It looks after 1, 2, 4, … idle checks.
func (f *Follower) missed(ctx context.Context) bool {
	if f.idle++; f.idle&(f.idle-1) != 0 && f.idle%idleChecks != 0 {
		return false
	}
	stored, err := f.conn.leaderSeq(ctx, f.conn.names.log, directRequest{Seq: f.next, NextBy: f.subject})
	return err != nil || stored != 0
}

// deliver delivers a live chunk, or sets behind when LOG has an earlier one.
func (f *Follower) deliver(m *nats.Msg, fn func(schemas.Chunk) error) error {
	k, ok := f.conn.subjects.decodeChunk(parseUint(m.Header.Get(headerSequence)), m.Header.Get(headerSubject), m.Header, m.Data)
	if !ok || k.Seq < f.next {
		return nil
	}
	// The number orders stdout against stderr. The server's header names the sequence before this one.
	if !f.follows(&k) || parseUint(m.Header.Get(headerLastSequence)) >= f.next {
		f.behind = f.hole.IsZero() || f.continues(&k) // LOG has this chunk too
		return nil
	}
	f.next = k.Seq + 1
	if !f.accept(&k) {
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
			return f.catchUp(func() error { return f.readTo(ctx, r.Log.LastSeq, fn) })
		default:
			return err
		}
	}
	return nil
}

// complete reports whether everything that LOG has of the process was delivered.
func (f *Follower) complete(r *schemas.Result) bool {
	return r.Log == nil || f.next > r.Log.LastSeq
}
