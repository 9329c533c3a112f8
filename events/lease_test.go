package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestLeaseExpiresForItsHolderFirst(t *testing.T) {
	_, c := connected(t, true)
	ctx := testkit.Context(t)
	l, err := c.AcquireLease(ctx, "w", "one", nil, nil)
	testkit.Must(t, err)
	testkit.Equal(t, "a new lease holds", l.Holds(), true)
	testkit.Must(t, c.leased())
	ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: "e1", Source: "w", Type: schemas.TypeSessionReused, Tenant: "default", Thread: "t"}
	testkit.Must(t, c.Publish(ctx, ev))
	// As if the holder had been frozen for most of the TTL. For the server the lease is alive.
	l.mu.Lock()
	l.renewed = l.renewed.Add(-l.ttl + l.ttl/leaseMargin)
	l.mu.Unlock()
	testkit.Equal(t, "the lease holds after its holder's expiry", l.Holds(), false)
	alive, err := c.LeaseAlive(ctx, "w")
	testkit.Must(t, err)
	testkit.Equal(t, "the lease is alive on the server", alive, true)
	// Nothing is published any more, and a renewal does not restore the lease.
	testkit.Equal(t, "an expired lease was extended", l.extend(time.Now()), false)
	testkit.Equal(t, "the lease holds after the late renewal", l.Holds(), false)
	again := *ev
	again.ID = "e2"
	testkit.WantCode(t, c.Publish(ctx, &again), schemas.CodeLost)
	_, err = c.Append(ctx, &again, 0)
	testkit.WantCode(t, err, schemas.CodeLost)
	w := c.Open(ref("t", "p"), nil)
	if err = w.Write(schemas.Stdout, 0, []byte("late")); err == nil {
		_, err = w.Close()
		testkit.WantCode(t, err, schemas.CodeLost)
	}
	// The next incarnation may publish.
	_, err = c.AcquireLease(ctx, "w", "two", []string{"one"}, nil)
	testkit.Must(t, err)
	testkit.Must(t, c.Publish(ctx, &again))
}

func TestLeaseIsRenewedAndReleased(t *testing.T) {
	_, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
	l, err := c.AcquireLease(testkit.Context(t), "w1", "i1", nil, nil)
	testkit.Must(t, err)
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
	alive, err := c.LeaseAlive(testkit.Context(t), "w1")
	testkit.Must(t, err)
	testkit.Equal(t, "alive while renewed", alive, true)
	cancel()
	testkit.Must(t, <-ended)
	alive, err = c.LeaseAlive(testkit.Context(t), "w1")
	testkit.Must(t, err)
	testkit.Equal(t, "alive after its release", alive, false)
}

func TestLeaseIsLost(t *testing.T) {
	_, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
	t.Run("to another incarnation", func(t *testing.T) {
		l, err := c.AcquireLease(testkit.Context(t), "w1", "i1", nil, nil)
		testkit.Must(t, err)
		_, err = c.AcquireLease(testkit.Context(t), "w1", "i2", []string{"i1"}, nil)
		testkit.Must(t, err)
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("by expiry", func(t *testing.T) {
		l, err := c.AcquireLease(testkit.Context(t), "w2", "i1", nil, nil)
		testkit.Must(t, err)
		for alive := true; alive; {
			alive, err = c.LeaseAlive(testkit.Context(t), "w2")
			testkit.Must(t, err)
		}
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("with the server", func(t *testing.T) {
		n, c := connected(t, true)
		testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
		l, err := c.AcquireLease(testkit.Context(t), "w3", "i1", nil, nil)
		testkit.Must(t, err)
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
	n, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
	other := n.connect()
	testkit.Must(t, other.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
	first, err := c.AcquireLease(testkit.Context(t), "w", "i1", nil, nil)
	testkit.Must(t, err)
	stop := runLease(t, first)
	waits := ""
	waiting := func(holder string) { waits += holder + " " }
	// Also one that knows earlier incarnations, such as a copy of the data folder.
	_, err = other.AcquireLease(testkit.Context(t), "w", "i2", []string{"i0"}, waiting)
	testkit.WantCode(t, err, schemas.CodeConflict)
	if !strings.Contains(err.Error(), "i1") || !strings.Contains(err.Error(), "WORKER_ID") {
		t.Errorf("error = %v, want it to name the incarnation i1 and WORKER_ID", err)
	}
	testkit.Equal(t, "waits for", waits, "i1 ")
	testkit.Equal(t, "the first lease holds", first.Holds(), true)
	// A released lease is free at once.
	stop()
	_, err = other.AcquireLease(testkit.Context(t), "w", "i2", nil, func(holder string) { t.Errorf("it waits for %s, which has released its lease", holder) })
	testkit.Must(t, err)
}

func TestKilledWorkersLeaseIsTakenOver(t *testing.T) {
	n, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
	killed := func(worker string) *Lease {
		conn := n.connect()
		testkit.Must(t, conn.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
		l, err := conn.AcquireLease(testkit.Context(t), worker, "i1", nil, nil)
		testkit.Must(t, err)
		return l
	}
	t.Run("at once by the same worker", func(t *testing.T) {
		killed("w1")
		l, err := c.AcquireLease(testkit.Context(t), "w1", "i2", []string{"i1", "i0"}, func(holder string) { t.Errorf("it waits for %s", holder) })
		testkit.Must(t, err)
		runLease(t, l)()
	})
	t.Run("at its expiry by another one", func(t *testing.T) {
		old, waited := killed("w2"), false
		l, err := c.AcquireLease(testkit.Context(t), "w2", "i2", nil, func(string) { waited = true })
		testkit.Must(t, err)
		testkit.Equal(t, "it waited", waited, true)
		testkit.Equal(t, "the old lease holds", old.Holds(), false)
		runLease(t, l)()
	})
	t.Run("by one of many", func(t *testing.T) {
		killed("w3")
		refused, held := make(chan error), make(chan *Lease)
		for i := range 8 {
			conn := n.connect()
			testkit.Must(t, conn.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
			go func() {
				l, err := conn.AcquireLease(t.Context(), "w3", fmt.Sprint("next-", i), []string{"i1"}, nil)
				if err != nil {
					refused <- err
					return
				}
				held <- l
			}()
		}
		stop := runLease(t, <-held)
		for range 7 {
			testkit.WantCode(t, <-refused, schemas.CodeConflict)
		}
		stop()
	})
	t.Run("not while the start is canceled", func(t *testing.T) {
		killed("w4")
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.AcquireLease(ctx, "w4", "i2", nil, func(string) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want %v", err, context.Canceled)
		}
	})
}
