package events

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 1: a request to a leader that was lost has no answer. It is sent again long before its time is over.
func TestUnansweredSwapIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var tries atomic.Int32
		_, err := swap(t.Context(), func(ctx context.Context) (int, error) {
			if tries.Add(1) == 3 {
				return 7, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		testkit.Must(t, err)
		testkit.Equal(t, "time of two tries without an answer", time.Since(begun), 3*leaderTry)
		_, err = swap(t.Context(), func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		testkit.WantCode(t, wrap(err, "swap"), schemas.CodeDeadlineExceeded)
		testkit.Equal(t, "time of all tries", time.Since(begun), 3*leaderTry+publishTimeout)
	})
}

// A leader that answers each request late, as on a machine that starves, never had its answer taken: each request was given up before. And
// it got a request more each second.
func TestLateAnswerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var tries atomic.Int32
		try, err := answered(t.Context(), func(ctx context.Context) (int32, error) {
			try := tries.Add(1)
			return try, sleep(ctx, 7*leaderTry-1)
		})
		testkit.Must(t, err)
		testkit.Equal(t, "the request that is answered", try, int32(1))
		testkit.Equal(t, "time until its answer", time.Since(begun), 7*leaderTry-1)
		testkit.Equal(t, "requests", tries.Load(), int32(3)) // at once, and one and three seconds later
	})
}

// ackless stores the first message, and loses its ack.
type ackless struct {
	jetstream.JetStream
	tries int
}

// PublishMsg is a compare-and-swap.
func (a *ackless) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	a.tries++
	ack, err := a.JetStream.PublishMsg(ctx, m, opts...)
	if a.tries == 1 && err == nil {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

// Promises 19: the session that a repeated write conflicts with may be this write's own, and is no other owner's.
func TestSessionIsSavedWithoutAnAck(t *testing.T) {
	_, c := connected(t, true)
	_, err := c.stateBucket(testkit.Context(t)) // made before
	testkit.Must(t, err)
	js := &ackless{JetStream: c.js}
	c.js = js
	s := &schemas.Session{ID: "s1", Tenant: "default", Thread: "t", Owner: "w1", Epoch: 1}
	revision, err := c.Conn.Worker().Sessions.SaveSession(testkit.Context(t), s, 0)
	testkit.Must(t, err)
	testkit.Equal(t, "tries", js.tries, 2)
	s.Epoch++
	_, err = c.Conn.Worker().Sessions.SaveSession(testkit.Context(t), s, revision)
	testkit.Must(t, err)
	s.Owner = "w2"
	_, err = c.Conn.Worker().Sessions.SaveSession(testkit.Context(t), s, revision)
	testkit.WantCode(t, err, schemas.CodeConflict)
}

// acklessBucket deletes a key, and loses the ack of the first delete.
type acklessBucket struct {
	jetstream.KeyValue
	tries int
}

// Delete is a compare-and-swap.
func (b *acklessBucket) Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error {
	err := b.KeyValue.Delete(ctx, key, opts...)
	if b.tries++; b.tries == 1 && err == nil {
		return context.DeadlineExceeded
	}
	return err
}

// Promises 15: a worker that had released its lease failed at its end, because the repeated release conflicted with the first one.
func TestLeaseIsReleasedWithoutAnAck(t *testing.T) {
	_, c := connected(t, true)
	l := c.acquire(t, "w1", "i1", nil, nil)
	bucket := &acklessBucket{KeyValue: l.kv}
	l.kv = bucket
	testkit.Must(t, l.release(testkit.Context(t)))
	testkit.Equal(t, "tries", bucket.tries, 2)
	c.wantAlive(t, "w1", false)
}

// Promises 15: the write that shows that a lease has expired conflicts with its own earlier try, and not with the worker.
func TestExpiredLeaseIsSeenWithoutAnAck(t *testing.T) {
	_, c := connected(t, true)
	_, err := c.bucket(testkit.Context(t), c.names.leases) // made before
	testkit.Must(t, err)
	js := &ackless{JetStream: c.js}
	c.js = js
	c.wantAlive(t, "never-was", false)
	testkit.Equal(t, "tries", js.tries, 3)
}

// Promises 19: the delete that a repeated delete conflicts with is its own, unless another worker was first.
func TestSessionIsDeletedWithoutAnAck(t *testing.T) {
	_, c := connected(t, true)
	s := &schemas.Session{ID: "s1", Tenant: "default", Thread: "t", Owner: "w1", Epoch: 1}
	revision, err := c.Conn.Worker().Sessions.SaveSession(testkit.Context(t), s, 0)
	testkit.Must(t, err)
	js := &ackless{JetStream: c.js}
	c.js = js
	testkit.Must(t, c.Conn.Worker().Sessions.DeleteSession(testkit.Context(t), s, revision))
	testkit.Equal(t, "tries", js.tries, 2)
	testkit.WantCode(t, c.Conn.Worker().Sessions.DeleteSession(testkit.Context(t), s, revision), schemas.CodeConflict)
}

// Promises 1: a forwarded command that got lost on its way is sent again in the same delivery.
func TestLostForwardIsSentAgain(t *testing.T) {
	_, c := connected(t, true)
	attempts := make(chan string, 16)
	first := true
	sub, err := c.nc.Subscribe(c.subjects.WorkerForwards("w2"), func(m *nats.Msg) {
		attempts <- m.Header.Get(headerAttempt)
		if !first {
			reply := nats.NewMsg(m.Reply)
			reply.Header.Set(headerVerdict, verdicts[schemas.ActionDone])
			_ = c.nc.PublishMsg(reply)
		}
		first = false
	})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	d := schemas.Delivery{Tenant: "default", Thread: "t", Op: schemas.OpExec, Attempt: 1}
	d.SetCommand(&schemas.Command{Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{Command: "true"}})
	v, err := c.Conn.Worker().NewListener("w1").forward(testkit.Context(t), "w2", d, []byte("{}"))
	testkit.Must(t, err)
	testkit.Equal(t, "action", v.Action, schemas.ActionDone)
	testkit.Equal(t, "attempts", []string{<-attempts, <-attempts}, []string{"1", "1"})
}

// Promises 15: an acceptance is stored by a server that wakes, its ack comes too late, and the lease has lapsed meanwhile. The repeated write
// conflicts with itself: it must not look like another worker's record.
func TestConflictWithoutALeaseLeavesTheOutcomeOpen(t *testing.T) {
	_, c := connected(t, true)
	lease, err := c.Conn.Worker().AcquireLease(testkit.Context(t), "w1", "i1", nil, nil)
	testkit.Must(t, err)
	c.js = &late{JetStream: c.js, stored: lease.expire}
	ev := record("t", "p", schemas.TypeProcessAccepted, "e1")
	_, err = c.Conn.Worker().Records.Append(testkit.Context(t), ev, 0)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	last, err := c.Conn.Worker().Records.Last(testkit.Context(t), "default", "t", "p")
	testkit.Must(t, err)
	testkit.Equal(t, "stored", last.ID, ev.ID)
}

// late stores the first message, and loses its ack.
type late struct {
	jetstream.JetStream
	stored func()
	tries  int
}

// PublishMsg stores a message.
func (l *late) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, m, opts...)
	if l.tries++; l.tries == 1 && err == nil {
		l.stored()
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

// leaderless has no leader for the first messages.
type leaderless struct {
	jetstream.JetStream
	tries int
}

// PublishMsg stores a message.
func (l *leaderless) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if l.tries++; l.tries <= 2 {
		return nil, jetstream.ErrNoStreamResponse
	}
	return l.JetStream.PublishMsg(ctx, m, opts...)
}

// Promises 14: MSG elects its leader while a prompt is saved. The save waits for it: what is not saved is lost with a killed worker.
func TestMessageIsSavedAfterAnElection(t *testing.T) {
	_, c := connected(t, true)
	c.js = &leaderless{JetStream: c.js}
	seq, err := c.Conn.Worker().Messages.SaveMessage(testkit.Context(t), "default", &schemas.Message{Thread: "t", Process: "p", Role: schemas.RoleUser, Text: "hi"})
	testkit.Must(t, err)
	testkit.Equal(t, "sequence", seq, uint64(1))
}
