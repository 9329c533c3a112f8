package events

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

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

func TestLeaseIsRenewedAndReleased(t *testing.T) {
	c := newNode(t, false).shortLeases()
	l := c.acquire(t, "w1", "i1", nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	renewals, ended := make(chan struct{}, 64), make(chan error, 1)
	go func() { ended <- l.Run(ctx, func(context.Context) { renewals <- struct{}{} }) }()
	for range 5 { // longer than the TTL
		select {
		case <-renewals:
		case err := <-ended:
			t.Fatalf("Run ended: %v", err)
		}
	}
	c.wantAlive(t, "w1", true)
	cancel()
	testkit.Must(t, <-ended)
	c.wantAlive(t, "w1", false)
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

// runLease renews a lease until stop, which releases it.
func runLease(t *testing.T, l *Lease) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx, func(context.Context) {}) }()
	return func() {
		t.Helper()
		cancel()
		testkit.Must(t, <-ended)
	}
}

// Promises 16: a second worker with one id overwrote the live lease of the first, and both ran by turns.
func TestLiveLeaseIsNotOverwritten(t *testing.T) {
	n := newNode(t, false)
	c, other := n.shortLeases(), n.shortLeases()
	first := c.acquire(t, "w", "i1", nil, nil)
	stop := runLease(t, first)
	waits := ""
	waiting := func(holder string) { waits += holder + " " }
	// Also one that knows earlier incarnations, such as a copy of the data folder.
	_, err := other.AcquireLease(testkit.Context(t), "w", "i2", []string{"i0"}, waiting)
	testkit.WantCode(t, err, schemas.CodeConflict)
	if !strings.Contains(err.Error(), "i1") || !strings.Contains(err.Error(), "WORKER_ID") {
		t.Errorf("error = %v, want it to name the incarnation i1 and WORKER_ID", err)
	}
	testkit.Equal(t, "waits for", waits, "i1 ")
	testkit.Equal(t, "the first lease holds", first.Holds(), true)
	// A released lease is free at once.
	stop()
	other.acquire(t, "w", "i2", nil, func(holder string) { t.Errorf("it waits for %s, which has released its lease", holder) })
}

func TestKilledWorkersLeaseIsTakenOver(t *testing.T) {
	n := newNode(t, false)
	c := n.shortLeases()
	killed := func(worker string) *Lease { return n.shortLeases().acquire(t, worker, "i1", nil, nil) }
	t.Run("at once by the same worker", func(t *testing.T) {
		killed("w1")
		l := c.acquire(t, "w1", "i2", []string{"i1", "i0"}, func(holder string) { t.Errorf("it waits for %s", holder) })
		runLease(t, l)()
	})
	t.Run("at its expiry by another one", func(t *testing.T) {
		old, waited := killed("w2"), false
		l := c.acquire(t, "w2", "i2", nil, func(string) { waited = true })
		testkit.Equal(t, "it waited", waited, true)
		testkit.Equal(t, "the old lease holds", old.Holds(), false)
		runLease(t, l)()
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
	i, err := c.NewIncarnation(ctx, "w", Lineage{})
	testkit.Must(t, err)
	testkit.Must(t, i.Recover(ctx, func(ctx context.Context) error {
		for begun := i.Lease.until(); i.Lease.until().Before(begun.Add(2 * time.Second)); {
			if err := sleep(ctx, lagWait); err != nil {
				return err
			}
		}
		return nil
	}))
	if !i.Lease.Holds() {
		t.Error("the lease has expired during the recovery")
	}
	testkit.Must(t, i.Lease.release(ctx))
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
