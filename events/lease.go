package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Lease shows that a worker is alive. It expires by the server's clock unless it is renewed.
type Lease struct {
	conn        *Conn
	kv          jetstream.KeyValue
	worker      string
	incarnation string
	revision    uint64
	tried       time.Time // when the first write over revision began; zero before it
	ttl         time.Duration

	mu      sync.Mutex
	renewed time.Time
	steady  time.Time // since then each renewal was in time, and none was in doubt
	doubted bool      // a try to renew has failed since the last renewal
	expired bool      // stays true: a caller of Holds has seen false
}

// leaseMargin is the part of the TTL that the holder gives up, as a divisor. A message that the holder sends just before its own
// expiry must arrive before another worker can treat the holder as dead.
const leaseMargin = 5

// minPatience is the shortest time that other workers get to return after an outage.
const minPatience = 10 * time.Second

// foreignRenewals is how many renewals by another incarnation show that it is alive. A read may lag behind by one.
const foreignRenewals = 2

// AcquireLease acquires the lease of a worker id for this incarnation: at once when no incarnation holds it or one of earlier does,
// which the caller knows to have ended. It waits for any other incarnation's lease to expire, after it has called waiting once, which
// may be nil. From then on this connection publishes events, records and output only while the lease holds. Errors: conflict when
// the other incarnation renews its lease, unavailable.
func (w *Worker) AcquireLease(ctx context.Context, worker, incarnation string, earlier []string, waiting func(holder string)) (*Lease, error) {
	kv, err := w.conn.bucket(ctx, w.conn.names.leases)
	if err != nil {
		return nil, err
	}
	l := &Lease{conn: w.conn, kv: kv, worker: worker, incarnation: incarnation, ttl: w.conn.topology.LeaseTTL}
	var foreign struct {
		revision uint64
		renewals int
	}
	for {
		holder, revision, err := l.acquire(ctx, earlier)
		switch {
		case err == nil:
			w.conn.lease.Store(l)
			return l, nil
		case !errors.Is(err, schemas.ErrConflict):
			return nil, wrap(err, "acquire the lease of worker "+worker)
		case holder == "": // it was released or changed in between
		case foreign.revision == 0:
			foreign.revision = revision
			if waiting != nil {
				waiting(holder)
			}
		case revision > foreign.revision:
			foreign.revision = revision
			if foreign.renewals++; foreign.renewals == foreignRenewals {
				return nil, schemas.Errorf(schemas.CodeConflict,
					"worker id %s is in use: another worker (incarnation %s) renews its lease: stop that worker, or give this one an id of its own with WORKER_ID", worker, holder)
			}
		}
		if err := sleep(ctx, l.ttl/20); err != nil {
			return nil, wrap(err, "wait for the lease of worker "+worker)
		}
	}
}

// acquire writes the lease by compare-and-swap, if no other incarnation than an earlier one holds it. Errors: conflict, with the
// holder when it is another one; unavailable.
func (l *Lease) acquire(ctx context.Context, earlier []string) (holder string, revision uint64, err error) {
	// The server counts from the write. The expiry computed here must not be later, so it counts from before the write.
	begun := time.Now()
	l.revision, err = swap(ctx, func(ctx context.Context) (uint64, error) { return l.kv.Create(ctx, l.worker, []byte(l.incarnation)) })
	if errors.Is(err, jetstream.ErrKeyExists) {
		var e jetstream.KeyValueEntry
		switch e, err = l.kv.Get(ctx, l.worker); {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			return "", 0, schemas.Errorf(schemas.CodeConflict, "the lease of worker %s changes", l.worker)
		case err != nil:
			return "", 0, err
		case string(e.Value()) != l.incarnation && !slices.Contains(earlier, string(e.Value())):
			return string(e.Value()), e.Revision(), schemas.Errorf(schemas.CodeConflict, "incarnation %s holds the lease of worker %s", e.Value(), l.worker)
		}
		begun = time.Now()
		l.revision, err = l.update(ctx, e.Revision())
	}
	l.renewed, l.steady = begun, begun
	return "", 0, wrap(err, "write the lease")
}

// othersMayReturn reports whether NATS may have been away so shortly before that the leases of others expired for that alone. A worker
// that has just started cannot know; one that renews its lease sees a renewal that is late.
func (l *Lease) othersMayReturn() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.steady) < max(l.ttl, minPatience)
}

// expiry is when the lease ends for its holder. mu is held.
func (l *Lease) expiry() time.Time { return l.renewed.Add(l.ttl - l.ttl/leaseMargin) }

// check updates expired and reports whether the lease holds. mu is held.
func (l *Lease) check() bool {
	l.expired = l.expired || !time.Now().Before(l.expiry())
	return !l.expired
}

// Holds reports, by this machine's own clock, whether the lease has not expired. Once false it stays false, and Run returns a lost
// error.
func (l *Lease) Holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check()
}

// held returns nil while the lease holds, and for no lease. Errors: lost.
func (l *Lease) held() error {
	if l != nil && !l.Holds() {
		return schemas.LeaseLost(l.worker)
	}
	return nil
}

// extend restarts the TTL at this time, unless the lease has expired.
func (l *Lease) extend(renewed time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() {
		if l.doubted || renewed.Sub(l.renewed) > l.ttl*2/3 {
			l.steady = renewed
		}
		l.renewed, l.doubted = renewed, false
	}
	return !l.expired
}

func (l *Lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expiry()
}

// due is when the lease should be renewed next.
func (l *Lease) due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed.Add(l.ttl / 3)
}

// Run renews the lease three times per TTL until ctx ends, and then releases it. It calls onRenewed after each renewal. It returns
// a lost error as soon as another incarnation has the lease, which is also a conflict, or it cannot be renewed in time: other workers may
// then take over what this one ran, and it must publish nothing more. After any other failure it tries again until the lease expires.
func (l *Lease) Run(ctx context.Context, onRenewed func(context.Context)) error {
	if err := l.keep(ctx, onRenewed); err != nil {
		return err
	}
	return l.release(context.WithoutCancel(ctx))
}

// keep is Run without the release.
func (l *Lease) keep(ctx context.Context, onRenewed func(context.Context)) error {
	for wait := l.ttl / 3; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(wait, time.Until(l.until()))):
		}
		err := l.renew(ctx)
		wait = l.ttl / 20
		switch {
		case err == nil:
			onRenewed(ctx)
			wait = max(time.Until(l.due()), wait)
		case ctx.Err() != nil:
		case errors.Is(err, schemas.ErrConflict), !l.Holds():
			l.expire()
			return fmt.Errorf("%w: %w", schemas.LeaseLost(l.worker), err)
		default:
			l.doubt()
		}
	}
}

// doubt notes that a renewal has failed: NATS may be away for other workers too, longer than for this one.
func (l *Lease) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubted = true
}

func (l *Lease) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expired = true
}

// update writes the lease over this revision.
func (l *Lease) update(ctx context.Context, revision uint64) (uint64, error) {
	return swap(ctx, func(ctx context.Context) (uint64, error) {
		return l.kv.Update(ctx, l.worker, []byte(l.incarnation), revision)
	})
}

// renew restarts the TTL. A write that was stored counts also when its answer is lost or late, as on a machine that starves: nothing
// but this holder's own writes over a revision store its incarnation, only one of them is stored, and none began before the first.
// Errors: conflict when another incarnation has the lease; any other leaves the outcome open.
func (l *Lease) renew(ctx context.Context) error {
	begun := time.Now()
	if l.tried.IsZero() {
		l.tried = begun
	}
	deadline := l.until()
	if third := begun.Add(l.ttl / 3); third.Before(deadline) {
		deadline = third
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	rev, err := l.update(ctx, l.revision)
	if errors.Is(wrap(err, ""), schemas.ErrConflict) {
		holder, revision, readErr := l.conn.leaseHolder(ctx, l.worker)
		switch {
		case readErr != nil:
			err = readErr
		case holder != "" && holder != l.incarnation && revision > l.revision:
		case holder == l.incarnation && revision > l.revision: // an earlier write had no answer
			rev, begun, err = revision, l.tried, nil
			l.doubt()
		default: // a server that was frozen may miss it for a moment: a later renewal finds out
			err = schemas.Errorf(schemas.CodeUnavailable, "the lease has changed, and does not show it yet")
		}
	}
	if err != nil {
		return wrap(err, "renew the lease of worker "+l.worker)
	}
	l.revision, l.tried = rev, time.Time{}
	if !l.extend(begun) {
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the renewal of the lease of worker %s came after its expiry", l.worker)
	}
	return nil
}

// release deletes the lease, if this incarnation has it. Errors: unavailable.
func (l *Lease) release(ctx context.Context) error {
	l.conn.lease.CompareAndSwap(l, nil) // all work under the lease has ended
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	remove := func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.kv.Delete(ctx, l.worker, jetstream.LastRevision(l.revision))
	}
	_, err := swap(ctx, remove)
	if errors.Is(wrap(err, ""), schemas.ErrConflict) {
		switch holder, revision, readErr := l.conn.leaseHolder(ctx, l.worker); {
		case readErr != nil:
		case holder == l.incarnation: // the ack of the last renewal was lost
			l.revision = revision
			_, err = swap(ctx, remove)
		default: // an earlier try had no answer
			err = nil
		}
	}
	return wrap(err, "release the lease of worker "+l.worker)
}
