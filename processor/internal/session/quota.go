package session

import (
	"math"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Quotas bound the sandboxes that a worker has at a time, and those of one tenant by their limits, whatever of that they use.
type Quotas struct {
	// MaxSandboxes is how many sandboxes the worker has at a time. Default 4,096, the most that provider jail can have.
	MaxSandboxes int
	// TenantSandboxes bounds those of one tenant. Default: seven times what the tenant leaves free, 3,584 of a tenant that is alone.
	TenantSandboxes int
	// TenantMemoryBytes and TenantCPUs bound the sums of the limits of one tenant's sandboxes. Default: no bound.
	TenantMemoryBytes int64
	TenantCPUs        int
}

// Validate checks the quotas. Errors: invalid_argument.
func (q *Quotas) Validate() error {
	switch {
	case q.MaxSandboxes < 1:
		return schemas.Errorf(schemas.CodeInvalidArgument, "--max-sandboxes is %d: it must be at least 1", q.MaxSandboxes)
	case q.TenantSandboxes < 0, q.TenantMemoryBytes < 0, q.TenantCPUs < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "--tenant-sandboxes is %d, --tenant-memory %d and --tenant-cpus %d: they must not be negative",
			q.TenantSandboxes, q.TenantMemoryBytes, q.TenantCPUs)
	default:
		return nil
	}
}

// need is what the limits of sandboxes let them take.
type need struct {
	sandboxes int
	memory    int64 // bytes
	cpus      int64 // thousandths, whose sums are exact
}

func needOf(l sandbox.Limits) need {
	return need{sandboxes: 1, memory: l.MemoryBytes, cpus: int64(math.Round(l.CPUs * 1000))}
}

func (n need) plus(o need, times int) need {
	return need{n.sandboxes + times*o.sandboxes, n.memory + int64(times)*o.memory, n.cpus + int64(times)*o.cpus}
}

// maxWaiting bounds the threads whose need is remembered.
const maxWaiting = 16384

// Places are the sandboxes that a worker may have. A thread holds a place from its first need of one until its sandbox has ended and
// nothing uses the session.
type Places struct {
	quotas Quotas
	worker string
	freed  func() // called without locks each time that a place is free again

	mu       sync.Mutex
	used     int
	held     map[string]need // by key
	byTenant map[string]need
	// waiting is what threads need whose commands wait, by key: unless that is known when a place is free, a command that needs more
	// would be tried again and again.
	waiting map[string]need
	cleared time.Time // waiting, of threads whose commands do not wait any more
}

// NewPlaces returns the places of a worker. freed is called without locks each time that one is free again.
func NewPlaces(q Quotas, worker string, freed func()) *Places {
	return &Places{
		quotas: q, worker: worker, freed: freed,
		held: make(map[string]need), byTenant: make(map[string]need), waiting: make(map[string]need),
	}
}

// take gives a thread a place. waits says that its command waits for one otherwise. Errors: limit_exceeded, pool_exhausted.
func (p *Places) take(tenant, thread string, n need, waits bool) *schemas.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key(tenant, thread)
	err := p.shortage(tenant, n)
	switch {
	case err == nil:
		p.put(tenant, k, n)
	case waits:
		p.await(k, n)
	}
	return err
}

// put gives a thread a place, whether there is one or not. mu is held.
func (p *Places) put(tenant, key string, n need) {
	delete(p.waiting, key)
	p.held[key] = n
	p.used++
	p.byTenant[tenant] = p.byTenant[tenant].plus(n, 1)
}

// await remembers what a thread needs. mu is held.
func (p *Places) await(key string, n need) {
	if len(p.waiting) >= maxWaiting && time.Since(p.cleared) > time.Minute {
		clear(p.waiting)
		p.cleared = time.Now()
	}
	if len(p.waiting) < maxWaiting {
		p.waiting[key] = n
	}
}

// release takes a thread's place back. The caller calls freed then, without locks.
func (p *Places) release(tenant, thread string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key(tenant, thread)
	n := p.held[k]
	delete(p.held, k)
	p.used--
	if p.byTenant[tenant] = p.byTenant[tenant].plus(n, -1); p.byTenant[tenant] == (need{}) {
		delete(p.byTenant, tenant)
	}
}

// Room returns how many threads that need as much as this one may take a place, or many when it has one.
func (p *Places) Room(tenant, thread string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key(tenant, thread)
	if _, holds := p.held[k]; holds {
		return math.MaxInt
	}
	n, known := p.waiting[k]
	switch {
	case known:
	case len(p.waiting) >= maxWaiting:
		return 0 // it may wait for more than there is
	default:
		n = need{sandboxes: 1} // whether it needs more shows when it takes one
	}
	left := p.left(tenant, n)
	return int(min(int64(left.sandboxes), left.memory, left.cpus))
}

// left returns how many sandboxes with this need a tenant may have yet, by each quota. mu is held.
func (p *Places) left(tenant string, n need) need {
	q, held := &p.quotas, p.byTenant[tenant]
	times := func(most, held, n int64) int64 {
		if most == 0 || n == 0 {
			return math.MaxInt
		}
		return max(most-held, 0) / n
	}
	return need{
		sandboxes: work.Share(max(q.MaxSandboxes-p.used, 0), held.sandboxes, q.TenantSandboxes),
		memory:    times(q.TenantMemoryBytes, held.memory, n.memory), cpus: times(int64(q.TenantCPUs)*1000, held.cpus, n.cpus),
	}
}

// shortage is why a tenant has no room for what a sandbox needs, nil when it has. mu is held.
func (p *Places) shortage(tenant string, n need) *schemas.Error {
	const wayOut = "stop sessions that are not needed (`sluice session list`, `sluice session stop`), or raise"
	q, held, left := &p.quotas, p.byTenant[tenant], p.left(tenant, n)
	switch {
	case p.used >= q.MaxSandboxes:
		return schemas.Errorf(schemas.CodePoolExhausted, "worker %s has %d sandboxes already: try again later, %s --max-sandboxes", p.worker, p.used, wayOut)
	case left.sandboxes == 0 && q.TenantSandboxes == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has used up its share of the sandboxes of worker %s, %d of %d: %s --tenant-sandboxes or --max-sandboxes",
			tenant, p.worker, held.sandboxes, q.MaxSandboxes, wayOut)
	case left.sandboxes == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has used up its quota of sandboxes on worker %s, %d of %d: %s --tenant-sandboxes",
			tenant, p.worker, held.sandboxes, q.TenantSandboxes, wayOut)
	case left.memory == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "the sandboxes of tenant %s on worker %s may use %d bytes of memory, one more may use %d, and its quota is %d: %s --tenant-memory",
			tenant, p.worker, held.memory, n.memory, q.TenantMemoryBytes, wayOut)
	case left.cpus == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "the sandboxes of tenant %s on worker %s may use %g CPUs, one more may use %g, and its quota is %d: %s --tenant-cpus",
			tenant, p.worker, float64(held.cpus)/1000, float64(n.cpus)/1000, q.TenantCPUs, wayOut)
	default:
		return nil
	}
}

// fits returns nil when a sandbox fits into the quotas of a tenant that has none. Errors: limit_exceeded.
func (q *Quotas) fits(worker, template string, n need) *schemas.Error {
	switch {
	case q.TenantMemoryBytes > 0 && n.memory > q.TenantMemoryBytes:
		return schemas.Errorf(schemas.CodeLimitExceeded, "template %s has a memory limit of %d bytes, and worker %s gives all sandboxes of a tenant %d: use another template, or raise --tenant-memory",
			template, n.memory, worker, q.TenantMemoryBytes)
	case q.TenantCPUs > 0 && n.cpus > int64(q.TenantCPUs)*1000:
		return schemas.Errorf(schemas.CodeLimitExceeded, "template %s has a limit of %g CPUs, and worker %s gives all sandboxes of a tenant %d: use another template, or raise --tenant-cpus",
			template, float64(n.cpus)/1000, worker, q.TenantCPUs)
	default:
		return nil
	}
}

// Used returns how many sandboxes the worker has, and how many one tenant may have when no other one has any.
func (p *Places) Used() (used, ofTenant int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, work.Share(p.quotas.MaxSandboxes, 0, p.quotas.TenantSandboxes)
}

// TakePlace gives the thread a place for a sandbox, unless it has one. waits says that its command waits for one otherwise. A thread that
// is being ended takes none. Errors: limit_exceeded, pool_exhausted.
func (t *Thread) TakePlace(waits bool) *schemas.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.takePlaceLocked(waits)
}

func (t *Thread) takePlaceLocked(waits bool) *schemas.Error {
	if t.placed || t.termination != nil {
		return nil
	}
	err := t.places.take(t.Tenant, t.ID, t.need, waits)
	t.placed = err == nil
	return err
}

// KeepPlace is TakePlace for what runs already, whether there is room or not.
func (t *Thread) KeepPlace() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.placed {
		return
	}
	t.places.mu.Lock()
	defer t.places.mu.Unlock()
	t.places.put(t.Tenant, key(t.Tenant, t.ID), t.need)
	t.placed = true
}

// YieldPlace takes the thread's place back, unless something uses the session or its sandbox has not ended.
func (t *Thread) YieldPlace() {
	t.mu.Lock()
	sandboxed := t.parking != nil || (t.attempt != nil && !t.attempt.life.state.Final())
	yields := t.placed && t.busy == 0 && !sandboxed
	if yields {
		t.releasePlaceLocked()
	}
	t.mu.Unlock()
	if yields {
		t.places.freed()
	}
}

// releasePlaceLocked takes the thread's place back, for a caller that holds t.mu and calls freed without it.
func (t *Thread) releasePlaceLocked() {
	if t.placed {
		t.placed = false
		t.places.release(t.Tenant, t.ID)
	}
}
