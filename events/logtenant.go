package events

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// tenantCheck is how often a worker compares what LOG holds of its tenants with their budget.
const tenantCheck = 2 * time.Second

// logUsage is what one worker has stored in LOG or in EVT, by tenant. The state bucket has it for each worker, so that any worker can add up the
// output of a tenant. Floors are the sequences up to which the output of a tenant was dropped.
type logUsage struct {
	Tenants map[string][]segment `json:"tenants"`
	Floors  map[string]uint64    `json:"floors,omitempty"`
}

// tenantLogs keeps what LOG holds of the tenants within their budget.
type tenantLogs struct{ conn *Conn }

// watch keeps what LOG holds of each tenant within its budget, until ctx ends. Each worker does so for the tenants whose output it
// stores.
func (t *tenantLogs) watch(ctx context.Context, worker string) {
	tick := time.NewTicker(tenantCheck)
	defer tick.Stop()
	t.check(ctx, worker, true) // what an earlier incarnation stored
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
			defer cancel()
			t.check(last, worker, false)
			return
		case <-tick.C:
			t.check(ctx, worker, false)
		}
	}
}

// check saves what this worker stored, and drops the oldest output of tenants beyond their budget. What fails is tried at the
// next check.
func (t *tenantLogs) check(ctx context.Context, worker string, load bool) {
	if !t.conn.budget.due() && !load {
		return
	}
	log, err := t.conn.bulkJS.Stream(ctx, t.conn.names.log)
	if err != nil {
		return
	}
	all, err := usages(ctx, t.conn, usagePrefix)
	if err != nil {
		return
	}
	first := log.CachedInfo().State.FirstSeq
	own, budget := t.conn.budget.exchange(all, worker, first, load)
	all[worker] = own
	floors := make(map[string]uint64)
	for tenant := range own.Tenants {
		if upTo := overBudget(all, tenant, first, budget); upTo > 0 && t.drop(ctx, log, tenant, upTo) == nil {
			floors[tenant] = upTo
		}
	}
	own = t.conn.budget.floor(floors)
	kv, err := t.conn.stateBucket(ctx)
	if err != nil || t.conn.leased() != nil {
		return
	}
	if body, err := json.Marshal(own); err == nil && (len(own.Tenants) > 0 || !load) {
		_, _ = kv.Put(ctx, usagePrefix+worker, body)
	}
	for name, u := range all {
		if name != worker && u.expired(first) {
			_ = kv.Delete(ctx, usagePrefix+name) // a worker that is gone
		}
	}
}

// expired reports whether LOG, which begins at this sequence, has nothing more of the worker.
func (u *logUsage) expired(first uint64) bool {
	for _, segments := range u.Tenants {
		if slices.ContainsFunc(segments, func(s segment) bool { return s.Last >= first }) {
			return false
		}
	}
	for _, floor := range u.Floors {
		if floor >= first {
			return false
		}
	}
	return true
}

// usages reads what the workers have stored in LOG, or in EVT.
func usages(ctx context.Context, c *Conn, prefix string) (map[string]logUsage, error) {
	all := make(map[string]logUsage)
	err := c.eachState(ctx, prefix+"*", "what tenants have stored", documentBatch, func(key string, m *storedMsg) error {
		var u logUsage
		if json.Unmarshal(m.data, &u) == nil {
			all[key[len(prefix):]] = u
		}
		return nil
	})
	return all, err
}

// held returns what LOG, which begins at a sequence, holds of a tenant, oldest first, and how many bytes that is.
func held(all map[string]logUsage, tenant string, first uint64) (segments []segment, bytes int64) {
	floor := max(first, 1) - 1
	for _, u := range all {
		floor = max(floor, u.Floors[tenant])
	}
	for _, u := range all {
		for _, s := range u.Tenants[tenant] {
			if s.Last > floor && s.Bytes > 0 {
				segments = append(segments, s)
				bytes += s.Bytes
			}
		}
	}
	slices.SortFunc(segments, func(a, b segment) int { return cmp.Compare(a.Last, b.Last) })
	return segments, bytes
}

// overBudget returns the sequence up to which a tenant's output has to go; 0 for none.
func overBudget(all map[string]logUsage, tenant string, first uint64, budget int64) (upTo uint64) {
	segments, bytes := held(all, tenant, first)
	if budget <= 0 || bytes <= budget {
		return 0
	}
	for _, s := range segments {
		if bytes <= budget-budget/trimShare/2 {
			break
		}
		upTo, bytes = s.Last, bytes-s.Bytes
	}
	return upTo
}

// drop drops the output of a tenant up to a sequence, one subject after the other: for a pattern of subjects the server would
// read the whole stream.
func (t *tenantLogs) drop(ctx context.Context, log jetstream.Stream, tenant string, upTo uint64) error {
	last := ""
	for seq := uint64(1); ; {
		msgs, _, err := t.conn.directGet(ctx, t.conn.names.log, directRequest{Seq: seq, NextBy: t.conn.subjects.TenantLogs(tenant), Batch: 1})
		if err != nil {
			return err
		}
		if len(msgs) == 0 || msgs[0].seq > upTo {
			return nil
		}
		seq = msgs[0].seq + 1
		if msgs[0].subject == last {
			continue // a replica that lags behind
		}
		last = msgs[0].subject
		if err := t.conn.leased(); err != nil {
			return err
		}
		if err := log.Purge(ctx, jetstream.WithPurgeSubject(last), jetstream.WithPurgeSequence(upTo+1)); err != nil {
			return wrap(err, "drop the oldest output of tenant "+tenant)
		}
	}
}

// due reports whether enough was stored since the last check.
func (b *logBudget) due() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.grown > 0 && b.grown >= b.tenant/schemas.TenantGrain
}

// exchange takes over what the other workers dropped and, with load, what this worker's earlier incarnations stored. It forgets what
// LOG does not have any more, and returns what it knows.
func (b *logBudget) exchange(all map[string]logUsage, worker string, first uint64, load bool) (own logUsage, budget int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if saved := all[worker]; load && !b.loaded {
		b.loaded = true
		for tenant, segments := range saved.Tenants {
			var old []*segment
			for i := range segments {
				old = append(old, &segments[i])
			}
			b.usage[tenant] = append(old, b.usage[tenant]...)
		}
	}
	b.grown = 0
	for _, u := range all {
		for tenant, seq := range u.Floors {
			if seq >= first {
				b.floors[tenant] = max(b.floors[tenant], seq)
			}
		}
	}
	maps.DeleteFunc(b.floors, func(_ string, seq uint64) bool { return seq < first })
	for tenant, segments := range b.usage {
		gone := max(b.floors[tenant], max(first, 1)-1)
		if b.usage[tenant] = slices.DeleteFunc(segments, func(s *segment) bool { return s.Last <= gone }); len(b.usage[tenant]) == 0 {
			delete(b.usage, tenant)
		}
	}
	return b.snapshot(), b.tenant
}

// floor notes up to which sequence this worker has dropped the output of tenants.
func (b *logBudget) floor(floors map[string]uint64) logUsage {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tenant, seq := range floors {
		b.floors[tenant] = max(b.floors[tenant], seq)
		b.usage[tenant] = slices.DeleteFunc(b.usage[tenant], func(s *segment) bool { return s.Last <= seq })
	}
	return b.snapshot()
}

func (b *logBudget) snapshot() logUsage {
	u := logUsage{Tenants: make(map[string][]segment, len(b.usage)), Floors: maps.Clone(b.floors)}
	for tenant, segments := range b.usage {
		for _, s := range segments {
			u.Tenants[tenant] = append(u.Tenants[tenant], *s)
		}
	}
	return u
}

// status is what LOG holds of a tenant, and its budgets.
func (t *tenantLogs) status(ctx context.Context, tenant string, info *jetstream.StreamInfo) (*schemas.LogStatus, error) {
	all, err := usages(ctx, t.conn, usagePrefix)
	if err != nil {
		return nil, err
	}
	s := &schemas.LogStatus{}
	_, s.TenantBytes = held(all, tenant, info.State.FirstSeq)
	s.MaxProcessBytes, s.MaxTenantBytes = budgetsOf(info.Config.Metadata)
	return s, nil
}
