package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// wantAlive fails the test unless a worker's lease is alive on the server, or not.
func (c *peer) wantAlive(t *testing.T, worker string, want bool) {
	t.Helper()
	alive, err := c.LeaseAlive(testkit.Context(t), worker)
	testkit.Must(t, err)
	testkit.Equal(t, "lease of "+worker+" is alive", alive, want)
}

// shortLeases returns a connection to the cell, with leases of one second.
func (n *node) shortLeases() *peer {
	n.t.Helper()
	c := n.connect()
	testkit.Must(n.t, c.Ensure(testkit.Context(n.t), Topology{LeaseTTL: time.Second}))
	return c
}

func TestLeaseExpiresForItsHolderFirst(t *testing.T) {
	_, c := connected(t, true)
	ctx := testkit.Context(t)
	l := c.acquire(t, "w", "one", nil, nil)
	testkit.Equal(t, "a new lease holds", l.Holds(), true)
	testkit.Must(t, c.leased())
	ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: "e1", Source: "w", Type: schemas.TypeSessionReused, Tenant: "default", Thread: "t"}
	testkit.Must(t, c.Publish(ctx, ev))
	// As if the holder had been frozen for most of the TTL. For the server the lease is alive.
	l.mu.Lock()
	l.renewed = l.renewed.Add(-l.ttl + l.ttl/leaseMargin)
	l.mu.Unlock()
	testkit.Equal(t, "the lease holds after its holder's expiry", l.Holds(), false)
	c.wantAlive(t, "w", true)
	// Nothing is published any more, and a renewal does not restore the lease.
	testkit.Equal(t, "an expired lease was extended", l.extend(time.Now()), false)
	testkit.Equal(t, "the lease holds after the late renewal", l.Holds(), false)
	again := *ev
	again.ID = "e2"
	testkit.WantCode(t, c.Publish(ctx, &again), schemas.CodeLost)
	testkit.WantCode(t, errorOf(c.Append(ctx, &again, 0)), schemas.CodeLost)
	w := c.Open(ref("t", "p"), nil)
	if err := w.Write(schemas.Stdout, 0, []byte("late")); err == nil {
		testkit.WantCode(t, errorOf(w.Close()), schemas.CodeLost)
	}
	// The next incarnation may publish.
	c.acquire(t, "w", "two", []string{"one"}, nil)
	testkit.Must(t, c.Publish(ctx, &again))
}

// inTime runs a test of a lease, with a worker id of its own, until its holder has renewed in time: a machine that stalls for most of the short
// TTL lets the lease expire, as promised. test returns the lease, and the error of its holder.
func inTime(t *testing.T, test func(worker string) (*Lease, error)) {
	t.Helper()
	ctx := testkit.Context(t)
	for i := 0; ; i++ {
		l, err := test(fmt.Sprint("w", i))
		if err == nil || l.Holds() || errors.Is(err, schemas.ErrConflict) && errors.Is(err, schemas.ErrLost) || ctx.Err() != nil {
			testkit.Must(t, err)
			return
		}
		t.Log(err)
	}
}

func TestLeaseIsRenewedAndReleased(t *testing.T) {
	c := newNode(t, false).shortLeases()
	inTime(t, func(worker string) (*Lease, error) {
		l := c.acquire(t, worker, "i1", nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		renewals := 0
		err := l.Run(ctx, func(context.Context) {
			if renewals++; renewals == 5 { // longer than the TTL
				if alive, err := c.LeaseAlive(testkit.Context(t), worker); err != nil || !alive && l.Holds() {
					t.Errorf("a lease that was renewed is alive: %v, error %v", alive, err)
				}
				cancel()
			}
		})
		if err == nil {
			c.wantAlive(t, worker, false)
		}
		return l, err
	})
}

func TestLeaseIsLost(t *testing.T) {
	c := newNode(t, false).shortLeases()
	t.Run("to another incarnation", func(t *testing.T) {
		l := c.acquire(t, "w1", "i1", nil, nil)
		c.acquire(t, "w1", "i2", []string{"i1"}, nil)
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("by expiry", func(t *testing.T) {
		l := c.acquire(t, "w2", "i1", nil, nil)
		for alive := true; alive; {
			var err error
			alive, err = c.LeaseAlive(testkit.Context(t), "w2")
			testkit.Must(t, err)
		}
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("with the server", func(t *testing.T) {
		n := newNode(t, true)
		c := n.shortLeases()
		l := c.acquire(t, "w3", "i1", nil, nil)
		n.server.Close()
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
}

// runLease renews a lease until stop, which releases it and returns the error of Run.
func runLease(t *testing.T, l *Lease) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, func(context.Context) {}) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// Promises 16: a second worker with one id overwrote the live lease of the first, and both ran by turns.
func TestLiveLeaseIsNotOverwritten(t *testing.T) {
	n := newNode(t, false)
	c, other := n.shortLeases(), n.shortLeases()
	inTime(t, func(worker string) (*Lease, error) {
		first := c.acquire(t, worker, "i1", nil, nil)
		stop := runLease(t, first)
		waits := ""
		waiting := func(holder string) { waits += holder + " " }
		// Also one that knows earlier incarnations, such as a copy of the data folder.
		_, err := other.AcquireLease(testkit.Context(t), worker, "i2", []string{"i0"}, waiting)
		held := first.Holds()
		ended := stop()
		if !held || ended != nil {
			return first, errors.Join(ended, errors.New("the first holder was late"))
		}
		testkit.WantCode(t, err, schemas.CodeConflict)
		if !strings.Contains(err.Error(), "i1") || !strings.Contains(err.Error(), "WORKER_ID") {
			t.Errorf("error = %v, want it to name the incarnation i1 and WORKER_ID", err)
		}
		testkit.Equal(t, "waits for", waits, "i1 ")
		// A released lease is free at once.
		other.acquire(t, worker, "i2", nil, func(holder string) { t.Errorf("it waits for %s, which has released its lease", holder) })
		return first, nil
	})
}

func TestKilledWorkersLeaseIsTakenOver(t *testing.T) {
	n := newNode(t, false)
	c := n.shortLeases()
	killed := func(worker string) *Lease { return n.shortLeases().acquire(t, worker, "i1", nil, nil) }
	t.Run("at once by the same worker", func(t *testing.T) {
		inTime(t, func(worker string) (*Lease, error) {
			killed(worker)
			l := c.acquire(t, worker, "i2", []string{"i1", "i0"}, func(holder string) { t.Errorf("it waits for %s", holder) })
			return l, runLease(t, l)()
		})
	})
	t.Run("at its expiry by another one", func(t *testing.T) {
		inTime(t, func(worker string) (*Lease, error) {
			old, waited := killed("of-another-"+worker), false
			l := c.acquire(t, "of-another-"+worker, "i2", nil, func(string) { waited = true })
			if !waited {
				return old, errors.New("the killed worker's lease expired before another one asked for it")
			}
			testkit.Equal(t, "the old lease holds", old.Holds(), false)
			return l, runLease(t, l)()
		})
	})
	t.Run("by one of many", func(t *testing.T) {
		killed("w3")
		refused, held := make(chan error, 8), make(chan *Lease, 8)
		for i := range 8 {
			conn := n.shortLeases()
			go func() {
				l, err := conn.AcquireLease(t.Context(), "w3", fmt.Sprint("next-", i), []string{"i1"}, nil)
				if err != nil {
					refused <- err
					return
				}
				held <- l
			}()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var holder *Lease
		var all sync.WaitGroup
		for range cap(held) {
			select {
			case err := <-refused:
				testkit.WantCode(t, err, schemas.CodeConflict)
			case l := <-held:
				// On a starved machine a holder may be late with its renewal, and lose the lease.
				if holder != nil && holder.Holds() {
					t.Error("two workers hold the lease")
				}
				holder = l
				all.Go(func() {
					if err := l.Run(ctx, func(context.Context) {}); err != nil && schemas.CodeOf(err) != schemas.CodeLost {
						t.Errorf("the lease ended with %v, want it released or lost", err)
					}
				})
			}
		}
		testkit.Equal(t, "one of them holds the lease", holder != nil, true)
		cancel()
		all.Wait()
	})
	t.Run("not while the start is canceled", func(t *testing.T) {
		killed("w4")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.AcquireLease(ctx, "w4", "i2", nil, func(string) { cancel() })
		wantIs(t, err, context.Canceled)
	})
}

// Promises 15: a recovery may take longer than the lease, since JetStream answers late after an outage. The lease is renewed meanwhile.
func TestLeaseIsRenewedDuringARecovery(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	testkit.Must(t, c.Ensure(ctx, Topology{LeaseTTL: time.Second}))
	inTime(t, func(worker string) (*Lease, error) {
		i, err := c.NewIncarnation(ctx, worker, Lineage{})
		testkit.Must(t, err)
		err = i.Recover(ctx, func(ctx context.Context) error {
			for begun := i.Lease.until(); i.Lease.until().Before(begun.Add(2 * time.Second)); {
				if err := sleep(ctx, lagWait); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			err = i.Lease.held()
		}
		if err == nil {
			err = i.Lease.release(ctx)
		}
		return i.Lease, err
	})
}

// Promises 15: a renewal that failed before one in time shows that NATS may be away for other workers.
func TestFailedRenewalIsAnOutageForOthers(t *testing.T) {
	begin := time.Now()
	l := &Lease{ttl: time.Hour, renewed: begin, steady: begin.Add(-2 * time.Hour)}
	l.extend(begin.Add(time.Minute))
	testkit.Equal(t, "others may return after a renewal", l.othersMayReturn(), false)
	l.doubt()
	l.extend(begin.Add(2 * time.Minute))
	testkit.Equal(t, "others may return after a failed renewal", l.othersMayReturn(), true)
}

// unanswered is a lease's bucket that stores each write and loses its answer: lost is called then.
type unanswered struct {
	jetstream.KeyValue

	lost func()
}

func (u unanswered) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if _, err := u.KeyValue.Update(ctx, key, value, revision); err != nil {
		return 0, err
	}
	u.lost()
	<-ctx.Done()
	return 0, ctx.Err()
}

// A machine that starves answers late, each time. The holder's writes had kept the lease alive for the server, and the holder gave it up.
func TestRenewalWithoutAnAnswerCountsFromItsBegin(t *testing.T) {
	_, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: testkit.Timeout}))
	l := c.acquire(t, "w", "one", nil, nil)
	kv := l.kv
	for range 3 {
		ctx, cancel := context.WithCancel(testkit.Context(t))
		begun := time.Now()
		l.kv = unanswered{kv, cancel}
		wantIs(t, l.renew(ctx), context.Canceled)
		ended := time.Now()
		l.kv = kv
		testkit.Must(t, l.renew(testkit.Context(t)))
		if l.renewed.Before(begun) || l.renewed.After(ended) {
			t.Errorf("the lease counts from %s, want from the write that was stored, begun at %s", l.renewed, begun)
		}
		testkit.Equal(t, "others may return after a renewal in doubt", l.othersMayReturn(), true)
	}
	testkit.Must(t, l.release(testkit.Context(t)))
	c.wantAlive(t, "w", false)
}

func TestRenewalIsRepeatedUntilItsWriteShows(t *testing.T) {
	_, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: testkit.Timeout}))
	l := c.acquire(t, "w", "one", nil, nil)
	begun := time.Now()
	l.kv = unanswered{l.kv, func() {}} // refusals are answered
	testkit.Must(t, l.renew(testkit.Context(t)))
	testkit.Equal(t, "the lease counts from the write", l.renewed.Before(begun), false)
}
