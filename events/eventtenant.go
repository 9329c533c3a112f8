package events

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Shares of EVT. See docs/adr/0064.
const (
	// shareFactor is how many times what is left free for records a tenant may hold.
	shareFactor = 7
	// eventMargin of EVT is what a tenant's other events may take beyond its share.
	eventMargin = 2 * reservedShare
)

// eventShares knows what EVT holds of each tenant: what this connection has stored, and what the other workers have by their last reports
// in the state bucket. The lock of eventRoom guards it.
type eventShares struct {
	most     int64 // of one tenant; 0 for the share
	own      *logBudget
	others   map[string]int64
	promised map[string]int64 // see eventRoom
	waiting  map[string]int64 // for an [EventBuffer] to store it
	waits    int64            // the sum of that
	seen     int64            // the size of EVT at the last exchange
}

func newEventShares() eventShares {
	return eventShares{own: newLogBudget(), others: make(map[string]int64), promised: make(map[string]int64), waiting: make(map[string]int64), seen: -1}
}

// held is what EVT holds of a tenant, what is promised to its processes, and what waits.
func (s *eventShares) held(tenant string) int64 {
	return s.others[tenant] + s.own.sum(tenant) + s.promised[tenant] + s.waiting[tenant]
}

// limit is what a tenant may hold when free is left of EVT for records, the tenant's own not counted.
func (s *eventShares) limit(free int64) int64 {
	if s.most > 0 {
		return s.most
	}
	return max(free, 0) / (shareFactor + 1) * shareFactor
}

// sum is what was stored for a tenant.
func (b *logBudget) sum(tenant string) (bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.usage[tenant] {
		bytes += s.Bytes
	}
	return bytes
}

// eventSize is what EVT stores of an event.
func eventSize(ev *schemas.Event, m *nats.Msg) int64 {
	return int64(len(m.Subject)+len(m.Data)+len(ev.TraceParent)+len(ev.TraceState)) + messageBytes
}

// stored counts an event that EVT has stored.
func (r *eventRoom) stored(tenant string, seq uint64, size int64) {
	r.shares.own.add(tenant, seq, size)
}

// share checks that a tenant may store this much more, and a margin. mu is held. Errors: limit_exceeded.
func (r *eventRoom) share(tenant string, more, margin int64) error {
	held := r.shares.held(tenant)
	limit := r.shares.limit(acceptBytes(r.max)-r.used-r.since-r.sum-r.shares.waits+held) + margin
	if r.max <= 0 || held+more <= limit {
		return nil
	}
	if most := r.shares.most; most > 0 {
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has %d KiB in the stream EVT, where --event-tenant-bytes allows %d KiB: wait until its older records expire, after %s, or raise --event-tenant-bytes, 0 for the default",
			tenant, held>>10, most>>10, r.age)
	}
	return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has %d MiB in the stream EVT of %d MiB, its share: wait until its older records expire, after %s, or enlarge EVT by --event-bytes",
		tenant, held>>20, r.max>>20, r.age)
}

// enqueue counts an event that is no record until dequeue: it waits to be stored. A tenant beyond its share does not fill EVT with such
// events, or the buffer. Errors: limit_exceeded.
func (r *eventRoom) enqueue(e *bufferedEvent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.share(e.ev.Tenant, int64(e.size()), r.max/eventMargin); err != nil {
		return err
	}
	r.wait(e, 1)
	return nil
}

func (r *eventRoom) dequeue(e *bufferedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait(e, -1)
}

func (r *eventRoom) wait(e *bufferedEvent, sign int64) {
	r.shares.waits += sign * int64(e.size())
	addTo(r.shares.waiting, e.ev.Tenant, sign*int64(e.size()))
}

// exchange saves what this worker has stored, and reads what the others have, when EVT has grown enough since the last time. load also
// reads what earlier incarnations of the worker stored. Errors: those of reading; what cannot be saved is saved at the next call.
func (r *eventRoom) exchange(ctx context.Context, c *Conn, worker string, info *jetstream.StreamInfo, load bool) error {
	size, limit, first := int64(info.State.Bytes), max(info.Config.MaxBytes, 0), info.State.FirstSeq
	r.mu.Lock()
	grown := size - r.shares.seen
	r.mu.Unlock()
	if !load && max(grown, -grown) < limit/schemas.TenantGrain {
		return nil
	}
	all, err := usages(ctx, c, recordsPrefix)
	if err != nil {
		return err
	}
	own, _ := r.shares.own.exchange(all, worker, first, load)
	others := make(map[string]int64)
	for name, u := range all {
		if name == worker {
			continue
		}
		for tenant := range u.Tenants {
			_, bytes := held(map[string]logUsage{name: u}, tenant, first)
			others[tenant] += bytes
		}
	}
	r.mu.Lock()
	r.shares.others, r.shares.seen = others, size
	r.mu.Unlock()
	saveRecordUsage(ctx, c, worker, own, all, first)
	return nil
}

// saveRecordUsage saves what this worker has stored in EVT, and deletes what workers that are gone had saved. What fails is saved later.
func saveRecordUsage(ctx context.Context, c *Conn, worker string, own logUsage, all map[string]logUsage, first uint64) {
	kv, err := c.stateBucket(ctx)
	if err != nil || c.leased() != nil {
		return
	}
	if body, err := json.Marshal(own); err == nil && len(own.Tenants) > 0 {
		_, _ = kv.Put(ctx, recordsPrefix+worker, body)
	}
	for name, u := range all {
		if name != worker && u.expired(first) {
			_ = kv.Delete(ctx, recordsPrefix+name) // a worker that is gone
		}
	}
}

// recordStatus is what EVT holds of a tenant, and how much that may be.
func recordStatus(ctx context.Context, c *Conn, tenant string, info *jetstream.StreamInfo) (*schemas.RecordStatus, error) {
	all, err := usages(ctx, c, recordsPrefix)
	if err != nil {
		return nil, err
	}
	s := &schemas.RecordStatus{}
	_, s.TenantBytes = held(all, tenant, info.State.FirstSeq)
	if limit := max(info.Config.MaxBytes, 0); limit > 0 {
		_, most := budgetsOf(info.Config.Metadata)
		shares := eventShares{most: most}
		s.MaxTenantBytes = shares.limit(acceptBytes(limit) - int64(info.State.Bytes) + s.TenantBytes)
	}
	return s, nil
}
