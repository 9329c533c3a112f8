package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Follower delivers a process's output as it is stored, in order and without holes: live while it keeps up, from LOG when it joined
// late or fell behind. It is for one goroutine.
type Follower struct {
	*logReader
	copies
	hole  time.Time // when a read last found the next chunk missing; zero when it was there
	early uint64    // the sequence of the newest copy that was kept, because LOG has an earlier one
}

// FollowLog subscribes to the output of a process, so that no later chunk is missed. from is the LOG sequence to begin at; 0 and 1
// are the beginning. Errors: unavailable.
func (r *Reader) FollowLog(ref schemas.ProcessRef, from uint64) (*Follower, error) {
	c := r.conn
	l := newLogReader(c, ref, "", from)
	f := &Follower{logReader: l, copies: copies{
		reader: &c.streamReader, nc: c.bulk, stream: c.names.log, subject: l.subject, operation: "follow process " + ref.Process,
	}}
	l.fromCopies = f.passCopies
	if err := f.open(c.subjects.Tail(ref.Tenant, ref.Thread, ref.Process)); err != nil {
		return nil, err
	}
	return f, nil
}

// CatchUp delivers what LOG has now, up to a chunk that is missing and may still be stored. It tries again while LOG does not answer.
// Errors: fn's, ctx's, unavailable without a stream LOG or once the connection is closed.
func (f *Follower) CatchUp(ctx context.Context, fn func(schemas.Chunk) error) error {
	return firstRead(ctx, f.nc.IsClosed, f.catchUpNow, fn)
}

func (f *Follower) catchUpNow(ctx context.Context, fn func(schemas.Chunk) error) error {
	return f.catchUp(func() error { return f.readNow(ctx, fn) })
}

func (f *Follower) catchUp(read func() error) error {
	f.hole = time.Time{}
	return f.copies.catchUp(func() error {
		err := read()
		if errors.Is(err, errHole) {
			f.hole, err = time.Now(), nil
		}
		return err
	})
}

// Next waits for one live chunk and delivers it, after the chunks that a full buffer or a broken connection dropped before it. It
// waits while the server is down, and while a chunk is missing that may still be stored. Errors: fn's, ctx's, unavailable once the
// connection is closed.
func (f *Follower) Next(ctx context.Context, fn func(schemas.Chunk) error) error {
	for {
		if f.behind || (!f.hole.IsZero() && time.Since(f.hole) > reconnectCheck) {
			return retryRead(ctx, f.nc.IsClosed, f.catchUpNow, fn)
		}
		m, err := f.wait(ctx, f.next)
		if err != nil {
			return err
		}
		if m != nil {
			return f.deliver(m, fn)
		}
	}
}

// deliver delivers a live chunk, or sets behind when LOG has an earlier one.
func (f *Follower) deliver(m *nats.Msg, fn func(schemas.Chunk) error) error {
	k, ok := f.decodeCopy(m)
	if !ok || k.Seq < f.next {
		return nil
	}
	// The number orders stdout against stderr. The server's header names the sequence before this one.
	if !f.follows(&k) || parseUint(m.Header.Get(headerLastSequence)) >= f.next {
		f.behind = f.hole.IsZero() || f.continues(&k) // LOG has this chunk too, for now
		if f.behind && k.Seq > f.early {
			f.kept, f.early = m, k.Seq
		}
		return nil
	}
	f.next = k.Seq + 1
	if !f.accept(&k) {
		return nil
	}
	return fn(k)
}

// passCopies passes the copies of what LOG has dropped before a chunk. They have arrived by then: the server sent them on the connection on
// which it sent the chunk, and stored them before. Errors: fn's.
func (f *Follower) passCopies(before *schemas.Chunk, fn func(schemas.Chunk) error) error {
	for f.skips(before) {
		m := f.take()
		if m == nil {
			return nil
		}
		k, ok := f.decodeCopy(m)
		switch {
		case !ok || k.Seq < f.next:
		case k.Seq >= before.Seq:
			f.kept = m
			return nil
		case f.skips(&k): // copies were dropped as well; a later one may have what is missing
		default:
			f.next = k.Seq + 1
			if f.accept(&k) {
				if err := fn(k); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (f *Follower) decodeCopy(m *nats.Msg) (schemas.Chunk, bool) {
	return f.conn.subjects.decodeChunk(parseUint(m.Header.Get(headerSequence)), m.Header.Get(headerSubject), m.Header, m.Data)
}

// finishTimeout is how long Finish waits for live chunks before it reads LOG: they usually have arrived.
const finishTimeout = 100 * time.Millisecond

// Finish delivers the rest of the output of a process that has ended. It tries again while LOG does not answer. Errors are those of Next.
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
			return retryRead(ctx, f.nc.IsClosed, func(ctx context.Context, fn func(schemas.Chunk) error) error {
				return f.catchUp(func() error { return f.readTo(ctx, r.Log.LastSeq, fn) })
			}, fn)
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
