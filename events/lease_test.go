package events

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestLeaseExpiresForItsHolderFirst(t *testing.T) {
	_, c := connected(t, true)
	ctx := testkit.Context(t)
	l, err := c.AcquireLease(ctx, "w", "one")
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
	_, err = c.AcquireLease(ctx, "w", "two")
	testkit.Must(t, err)
	testkit.Must(t, c.Publish(ctx, &again))
}

func TestLeaseIsRenewedAndReleased(t *testing.T) {
	_, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: time.Second}))
	l, err := c.AcquireLease(testkit.Context(t), "w1", "i1")
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
		l, err := c.AcquireLease(testkit.Context(t), "w1", "i1")
		testkit.Must(t, err)
		_, err = c.AcquireLease(testkit.Context(t), "w1", "i2")
		testkit.Must(t, err)
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
	t.Run("by expiry", func(t *testing.T) {
		l, err := c.AcquireLease(testkit.Context(t), "w2", "i1")
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
		l, err := c.AcquireLease(testkit.Context(t), "w3", "i1")
		testkit.Must(t, err)
		n.server.Close()
		testkit.WantCode(t, l.Run(testkit.Context(t), func(context.Context) {}), schemas.CodeLost)
	})
}
