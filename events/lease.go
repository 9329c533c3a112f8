package events

import (
	"context"
	"errors"
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
	renewed  time.Time
}

// AcquireLease takes the lease of a worker id for this incarnation, from an earlier one too: only one worker may use an id at a
// time, and a data folder's lock sees to that. Errors: unavailable.
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
	return &Lease{conn: c, kv: kv, worker: worker, revision: rev, renewed: begun}, nil
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
		case <-time.After(time.Until(l.renewed.Add(l.conn.leaseTTL))):
		}
		err := l.renew(ctx, incarnation)
		switch {
		case err == nil:
			renewed(ctx)
		case ctx.Err() != nil:
		case errors.Is(err, schemas.ErrConflict), time.Since(l.renewed) >= l.conn.leaseTTL:
			return schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost, what it ran is ended here: %w", l.worker, err)
		}
	}
}

func (l *Lease) renew(ctx context.Context, incarnation string) error {
	begun := time.Now()
	lapse := l.renewed.Add(l.conn.leaseTTL)
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
	l.revision, l.renewed = rev, begun
	return nil
}

func (l *Lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := l.kv.Delete(ctx, l.worker, jetstream.LastRevision(l.revision))
	return wrap(err, "give back the lease of worker "+l.worker)
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
