package events

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// errInFlight is the answer of a replicated stream to a compare-and-swap while another message on the subject is in flight.
func errInFlight() error {
	return &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}
}

// inFlightBucket answers that a renewal is in flight until it is settled. fate then says what becomes of that renewal.
type inFlightBucket struct {
	jetstream.KeyValue
	answers atomic.Int64 // how often it answers so
	fate    func(ctx context.Context, revision uint64)
	settled atomic.Bool
}

// Update refuses the first renewals.
func (b *inFlightBucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if b.answers.Add(-1) >= 0 {
		return 0, errInFlight()
	}
	if !b.settled.Swap(true) {
		b.fate(ctx, revision)
	}
	return b.KeyValue.Update(ctx, key, value, revision)
}

// Promises 15: a lease was lost at once while its own renewal was in flight on a replicated stream. Only another incarnation takes it.
func TestRenewalInFlightLosesNoLease(t *testing.T) {
	for _, v := range []struct {
		name string
		fate func(ctx context.Context, l *Lease, revision uint64)
		code schemas.Code // of Run; empty: the lease goes on
	}{
		{"it is not stored", func(context.Context, *Lease, uint64) {}, ""},
		{"it is stored", func(ctx context.Context, l *Lease, revision uint64) {
			_, err := l.kv.(*inFlightBucket).KeyValue.Update(ctx, l.worker, []byte(l.incarnation), revision)
			testkit.Must(t, err)
		}, ""},
		{"another incarnation has the lease", func(ctx context.Context, l *Lease, _ uint64) {
			_, err := l.kv.(*inFlightBucket).Put(ctx, l.worker, []byte("other"))
			testkit.Must(t, err)
		}, schemas.CodeConflict},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, c := connected(t, false)
			testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: 5 * time.Second}))
			l, err := c.AcquireLease(testkit.Context(t), "w", "i1", nil, nil)
			testkit.Must(t, err)
			bucket := &inFlightBucket{KeyValue: l.kv, fate: func(ctx context.Context, revision uint64) { v.fate(ctx, l, revision) }}
			bucket.answers.Store(3)
			l.kv = bucket
			ctx, cancel := context.WithCancel(testkit.Context(t))
			err = l.Run(ctx, func(context.Context) { cancel() }) // until the first renewal
			if v.code == "" {
				testkit.Must(t, err)
			} else if !errors.Is(err, schemas.ErrLost) || !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("error = %v, want lost and conflict", err)
			}
		})
	}
}

// Promises 15: a stale answer says nothing about a lease: neither an incarnation before this one, nor a key that is missing for now.
func TestStaleAnswerLosesNoLease(t *testing.T) {
	_, c := connected(t, false)
	testkit.Must(t, c.Ensure(testkit.Context(t), Topology{LeaseTTL: 5 * time.Second}))
	l, err := c.AcquireLease(testkit.Context(t), "w", "i1", nil, nil)
	testkit.Must(t, err)
	revision := l.revision
	l.revision += 5 // as if this incarnation had renewed at a leader since
	testkit.WantCode(t, l.renew(testkit.Context(t)), schemas.CodeUnavailable)
	testkit.Equal(t, "the lease holds", l.Holds(), true)
	l.revision = revision
	testkit.Must(t, l.renew(testkit.Context(t)))
	testkit.Must(t, l.kv.Purge(testkit.Context(t), "w"))
	testkit.WantCode(t, l.renew(testkit.Context(t)), schemas.CodeUnavailable)
	testkit.Equal(t, "the lease holds", l.Holds(), true)
}

// Promises 19: a compare-and-swap is tried again while another message is in flight, and its conflict is then one with a stored message.
func TestConflictIsStored(t *testing.T) {
	tries := 0
	got, err := swap(testkit.Context(t), func(context.Context) (int, error) {
		if tries++; tries < 4 {
			return 0, errInFlight()
		}
		return 7, nil
	})
	testkit.Must(t, err)
	testkit.Equal(t, "value and tries", []int{got, tries}, []int{7, 4})
	ctx, cancel := context.WithCancel(t.Context())
	_, err = swap(ctx, func(context.Context) (int, error) {
		cancel()
		return 0, errInFlight()
	})
	testkit.WantCode(t, wrap(err, "swap"), schemas.CodeUnavailable)
}
