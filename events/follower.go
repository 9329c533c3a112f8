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

// lineCheck is how often a follower that hears nothing looks whether its connection was down meanwhile.
const lineCheck = time.Second

// Follower reads a process's output as it is stored, in order and without holes: live while it keeps up, from LOG where it
// joined late or fell behind. It is for one goroutine.
type Follower struct {
	conn *Conn
	ref  schemas.ProcessRef
	sub  *nats.Subscription

	seq    uint64 // the last chunk delivered, or the one before the first wanted
	number int64  // of that chunk, and its epoch: what follows on it needs no look into LOG
	epoch  uint64
	told   ends

	line   uint64 // the connection's count of reconnects when LOG was last known to hold nothing unseen
	behind bool   // something was missed, and is in LOG
}

// Follow begins to listen: from now on no chunk of the process can be missed. from is the LOG sequence to begin at; 0 or 1 is the
// beginning. Errors: unavailable.
func (c *Conn) Follow(ref schemas.ProcessRef, from uint64) (*Follower, error) {
	sub, err := c.bulk.SubscribeSync(c.Subjects.Tail(ref.Tenant, ref.Thread, ref.Process))
	if err != nil {
		return nil, wrap(err, "follow process "+ref.Process)
	}
	if err := sub.SetPendingLimits(-1, followBuffer); err != nil {
		return nil, wrap(err, "follow process "+ref.Process)
	}
	f := &Follower{conn: c, ref: ref, sub: sub, told: make(ends, 2), line: c.bulk.Stats().Reconnects}
	if from > 0 {
		f.seq = from - 1
	}
	return f, nil
}

// Close ends the subscription.
func (f *Follower) Close() { _ = f.sub.Unsubscribe() } // should it fail, it ends with the connection

// Flush returns once the server knows of the subscription. Errors: unavailable, deadline_exceeded.
func (f *Follower) Flush(ctx context.Context) error {
	return wrap(flush(ctx, f.conn.bulk), "follow process "+f.ref.Process)
}

// CatchUp delivers what LOG has now. Errors are fn's, ctx's, unavailable or deadline_exceeded.
func (f *Follower) CatchUp(ctx context.Context, fn func(schemas.Chunk) error) error {
	// Until it has gone through, there may be something in LOG that no live chunk will tell of.
	f.behind = true
	line := f.conn.bulk.Stats().Reconnects
	next, err := f.conn.readLog(ctx, f.conn.Subjects.ProcessLog(f.ref.Tenant, f.ref.Thread, f.ref.Process), f.seq+1, 0, f.told, func(k schemas.Chunk) error {
		f.number, f.epoch = k.Number, k.Epoch
		return fn(k)
	})
	f.seq = max(f.seq, next-1)
	if err == nil {
		f.behind, f.line = false, line
	}
	return err
}

// Next waits for one live chunk and delivers it, after any that were missed before it; where a full buffer or a broken
// connection made it miss some, it delivers those. It waits while the server is away. Errors are fn's, ctx's, and unavailable
// once the connection is closed.
func (f *Follower) Next(ctx context.Context, fn func(schemas.Chunk) error) error {
	for {
		if f.behind {
			err := f.CatchUp(ctx, func(k schemas.Chunk) error { return callersOwn(fn(k)) })
			var own *ofCaller
			switch {
			case errors.As(err, &own):
				return own.err
			case ctx.Err() != nil:
				return ctx.Err()
			case err == nil:
				return nil
			case !passing(err) || f.conn.bulk.IsClosed():
				return err
			}
			if err := pause(ctx, lineCheck); err != nil {
				return err
			}
			continue
		}
		m, err := nextWithin(ctx, f.sub, lineCheck)
		switch {
		case err == nil:
			return f.live(m, fn)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrSlowConsumer):
			f.behind = true
		case errors.Is(err, nats.ErrTimeout):
			// What was stored while the connection was down came to nobody.
			f.behind = f.conn.bulk.Stats().Reconnects != f.line
		default:
			return wrap(err, "follow process "+f.ref.Process)
		}
	}
}

// ofCaller marks an error as the caller's own, whatever it is.
type ofCaller struct{ err error }

func callersOwn(err error) error {
	if err == nil {
		return nil
	}
	return &ofCaller{err}
}

func (e *ofCaller) Error() string { return e.err.Error() }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// live delivers a chunk that came by the subscription, or notes that there is something before it.
func (f *Follower) live(m *nats.Msg, fn func(schemas.Chunk) error) error {
	k, ok := f.conn.Subjects.chunkOf(parseUint(m.Header.Get(headerSequence)), m.Header.Get(headerSubject), m.Header, m.Data)
	if !ok || k.Seq <= f.seq {
		return nil
	}
	// The numbers order stdout against stderr too; the server's word on what came before settles the rest.
	follows := k.Number == f.number+1 && (k.Epoch == f.epoch || f.number == 0)
	if !follows || parseUint(m.Header.Get(headerLastSequence)) > f.seq || f.told.skips(&k) {
		f.behind = true // LOG has this one as well
		return nil
	}
	f.seq, f.number, f.epoch = k.Seq, k.Number, k.Epoch
	if !f.told.accept(&k) {
		return nil
	}
	return fn(k)
}

// finishPatience is how long Finish waits for live chunks before it reads them from LOG: they are usually here already.
const finishPatience = 100 * time.Millisecond

// Finish delivers what is left of a process that has ended. Errors are those of Next.
func (f *Follower) Finish(ctx context.Context, r *schemas.Result, fn func(schemas.Chunk) error) error {
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

// complete says whether everything of the process that LOG has was delivered.
func (f *Follower) complete(r *schemas.Result) bool {
	return r.Log == nil || f.seq >= r.Log.LastSeq
}
