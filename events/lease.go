package events

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Lease says that a worker is alive. It lapses by itself when it is not renewed, by the server's clock.
type Lease struct {
	conn     *Conn
	kv       jetstream.KeyValue
	worker   string
	revision uint64

	mu      sync.Mutex
	renewed time.Time
	lapsed  bool // for good: whoever asked was told that it does not hold
}

// leaseMargin is the part of a lease's lifetime that its holder gives away: what it was about to publish when it last looked
// must have arrived before anybody else can think it dead.
const leaseMargin = 5

// lapse is when the lease ends by its holder's reckoning. mu is held.
func (l *Lease) lapse() time.Time {
	return l.renewed.Add(l.conn.leaseTTL - l.conn.leaseTTL/leaseMargin)
}

// Holds says, by this machine's own clock, whether the lease has not lapsed. Once false it stays so: Run ends with lost.
func (l *Lease) Holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lapsed = l.lapsed || !time.Now().Before(l.lapse())
	return !l.lapsed
}

// extend moves the end on, unless it has passed.
func (l *Lease) extend(to time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lapsed || !time.Now().Before(l.lapse()) {
		l.lapsed = true
		return false
	}
	l.renewed = to
	return true
}

// until is when the lease ends unless it is renewed.
func (l *Lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapse()
}

// AcquireLease takes the lease of a worker id for this incarnation, from an earlier one too: only one worker may use an id at a
// time, and a data folder's lock sees to that. From then on this connection publishes no event, no record and no output but while
// the lease holds. Errors: unavailable.
func (c *Conn) AcquireLease(ctx context.Context, worker, incarnation string) (*Lease, error) {
	kv, err := c.bucket(ctx, c.names.leases)
	if err != nil {
		return nil, err
	}
	// The server counts from the moment of the write: what is reckoned here must not end later.
	begun := time.Now()
	rev, err := kv.PutString(ctx, worker, incarnation)
	if err != nil {
		return nil, wrap(err, "acquire the lease of worker "+worker)
	}
	l := &Lease{conn: c, kv: kv, worker: worker, revision: rev, renewed: begun}
	c.lease.Store(l)
	return l, nil
}

// Run renews the lease three times in its lifetime until ctx ends, and gives it back then. It calls renewed after each.
// It returns a lost error as soon as the lease is somebody else's or cannot be renewed in time: from then on other workers may
// take over what this one ran, and it must publish nothing more.
func (l *Lease) Run(ctx context.Context, incarnation string, renewed func(context.Context)) error {
	tick := time.NewTicker(l.conn.leaseTTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.release(context.WithoutCancel(ctx))
		case <-tick.C:
		case <-time.After(time.Until(l.until())):
		}
		err := l.renew(ctx, incarnation)
		switch {
		case err == nil:
			renewed(ctx)
		case ctx.Err() != nil:
		case errors.Is(err, schemas.ErrConflict), !l.Holds():
			return schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost, what it ran is ended here: %w", l.worker, err)
		}
	}
}

func (l *Lease) renew(ctx context.Context, incarnation string) error {
	begun := time.Now()
	lapse := l.until()
	if third := begun.Add(l.conn.leaseTTL / 3); third.Before(lapse) {
		lapse = third
	}
	ctx, cancel := context.WithDeadline(ctx, lapse)
	defer cancel()
	rev, err := l.kv.Update(ctx, l.worker, []byte(incarnation), l.revision)
	if errors.Is(wrap(err, ""), schemas.ErrConflict) {
		// An ack may have been lost on its way: the key then holds this incarnation under a revision not seen yet.
		if e, getErr := l.kv.Get(ctx, l.worker); getErr == nil && string(e.Value()) == incarnation && e.Revision() > l.revision {
			// When that was is not known, but not before the last renewal: only the next one restarts the clock.
			l.revision = e.Revision()
			rev, err = l.kv.Update(ctx, l.worker, []byte(incarnation), l.revision)
		}
	}
	if err != nil {
		return wrap(err, "renew the lease of worker "+l.worker)
	}
	l.revision = rev
	if !l.extend(begun) {
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the lease of worker %s was renewed too late", l.worker)
	}
	return nil
}

func (l *Lease) release(ctx context.Context) error {
	l.conn.lease.CompareAndSwap(l, nil) // whoever needed it has ended
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := l.kv.Delete(ctx, l.worker, jetstream.LastRevision(l.revision))
	return wrap(err, "give back the lease of worker "+l.worker)
}

// leased says whether this connection may publish as a worker: without a lease of its own it need not ask. Errors: lost.
func (c *Conn) leased() error {
	if l := c.lease.Load(); l != nil && !l.Holds() {
		return schemas.Errorf(schemas.CodeLost, "the lease of worker %s has lapsed: another worker may speak for what it ran", l.worker)
	}
	return nil
}

// LeaseAlive says whether a worker's lease has not lapsed. Errors: unavailable.
func (c *Conn) LeaseAlive(ctx context.Context, worker string) (bool, error) {
	kv, err := c.bucket(ctx, c.names.leases)
	if err != nil {
		return false, err
	}
	_, err = kv.Get(ctx, worker)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, wrap(err, "read the lease of worker "+worker)
	}
	return true, nil
}
