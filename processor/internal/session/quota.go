package session

import (
	"math"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Quotas bound the sessions and sandboxes that a worker has at a time, and those of one tenant, sandboxes by their limits, whatever of that
// they use.
type Quotas struct {
	// MaxSessions is how many sessions the worker has at a time, with a sandbox or without. Default 16,384.
	MaxSessions int
	// TenantSessions bounds those of one tenant. Default: seven times what the tenant leaves free, 14,336 of a tenant that is alone.
	TenantSessions int
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
	case q.MaxSessions < 1, q.TenantSessions < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "--max-sessions is %d and --tenant-sessions %d: they must be at least 1 and 0", q.MaxSessions, q.TenantSessions)
	case q.TenantSandboxes < 0, q.TenantMemoryBytes < 0, q.TenantCPUs < 0:
		return schemas.Errorf(schemas.CodeInvalidArgument, "--tenant-sandboxes is %d, --tenant-memory %d and --tenant-cpus %d: they must not be negative",
			q.TenantSandboxes, q.TenantMemoryBytes, q.TenantCPUs)
	default:
		return nil
	}
}

// need is how many sessions there are, and what the limits of sandboxes let them take.
type need struct {
	sessions  int
	sandboxes int
	memory    int64 // bytes
	cpus      int64 // thousandths, whose sums are exact
}

func needOf(l sandbox.Limits) need {
	return need{sandboxes: 1, memory: l.MemoryBytes, cpus: int64(math.Round(l.CPUs * 1000))}
}

func (n need) plus(o need, times int) need {
	return need{n.sessions + times*o.sessions, n.sandboxes + times*o.sandboxes, n.memory + int64(times)*o.memory, n.cpus + int64(times)*o.cpus}
}

// maxWaiting bounds the threads whose need is remembered.
const maxWaiting = 16384

// Places are the sessions and sandboxes that a worker may have. A thread holds a place for its session for as long as this worker owns it,
// and one for a sandbox from its first need of one until its sandbox has ended and nothing uses the session.
type Places struct {
	quotas Quotas
	worker string
	freed  func() // called without locks each time that a place is free again

	mu       sync.Mutex
	sessions map[string]struct{} // by key
	used     int
	held     map[string]need // of sandboxes, by key
	byTenant map[string]need
	// waiting is what threads need whose commands wait, by key: unless that is known when a place is free, a command that needs more
	// would be tried again and again.
	waiting map[string]need
	cleared time.Time // waiting, of threads whose commands do not wait any more
}

// NewPlaces returns the places of a worker. freed is called without locks each time that one is free again.
func NewPlaces(q Quotas, worker string, freed func()) *Places {
	return &Places{
		quotas: q, worker: worker, freed: freed, sessions: make(map[string]struct{}),
		held: make(map[string]need), byTenant: make(map[string]need), waiting: make(map[string]need),
	}
}

// take gives a thread what it needs. waits says that its command waits for that otherwise. Errors: limit_exceeded, pool_exhausted.
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

// put gives a thread what it needs, whether there is room or not. mu is held.
func (p *Places) put(tenant, key string, n need) {
	p.count(tenant, n, 1)
	if n.sessions > 0 {
		p.sessions[key] = struct{}{}
		n.sessions = 0
	}
	if n.sandboxes > 0 {
		delete(p.waiting, key)
		p.held[key] = n
		p.used++
	}
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

// release takes the place of a thread's sandbox back. The caller calls freed then, without locks.
func (p *Places) release(tenant, thread string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key(tenant, thread)
	n := p.held[k]
	delete(p.held, k)
	p.used--
	p.count(tenant, n, -1)
}

// count adds to what a tenant has. mu is held.
func (p *Places) count(tenant string, n need, times int) {
	if p.byTenant[tenant] = p.byTenant[tenant].plus(n, times); p.byTenant[tenant] == (need{}) {
		delete(p.byTenant, tenant)
	}
}

// end takes the place of a thread's session back. The caller calls freed then, without locks.
func (p *Places) end(tenant, thread string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, key(tenant, thread))
	p.count(tenant, need{sessions: 1}, -1)
}

// crowded is why a tenant may have no further session. mu is held.
func (p *Places) crowded(tenant string) *schemas.Error {
	q, has := &p.quotas, p.byTenant[tenant].sessions
	switch {
	case len(p.sessions) >= q.MaxSessions:
		return schemas.Errorf(schemas.CodePoolExhausted, "worker %s has %d sessions already: try again later, %s --max-sessions", p.worker, len(p.sessions), stopOrRaise)
	case q.TenantSessions == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has used up its share of the sessions of worker %s, %d of %d: %s --tenant-sessions or --max-sessions",
			tenant, p.worker, has, q.MaxSessions, stopOrRaise)
	default:
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has used up its quota of sessions on worker %s, %d of %d: %s --tenant-sessions",
			tenant, p.worker, has, q.TenantSessions, stopOrRaise)
	}
}

// Room returns how many threads that need as much as this one may begin or take a sandbox, or many when it has one.
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
	room := int(min(int64(left.sandboxes), left.memory, left.cpus))
	if _, begun := p.sessions[k]; !begun {
		room = min(room, left.sessions)
	}
	return room
}

// left returns how many sessions, and sandboxes with this need, a tenant may have yet, by each quota. mu is held.
func (p *Places) left(tenant string, n need) need {
	q, held := &p.quotas, p.byTenant[tenant]
	times := func(most, held, n int64) int64 {
		if most == 0 || n == 0 {
			return math.MaxInt
		}
		return max(most-held, 0) / n
	}
	return need{
		sessions:  work.Share(max(q.MaxSessions-len(p.sessions), 0), held.sessions, q.TenantSessions),
		sandboxes: work.Share(max(q.MaxSandboxes-p.used, 0), held.sandboxes, q.TenantSandboxes),
		memory:    times(q.TenantMemoryBytes, held.memory, n.memory), cpus: times(int64(q.TenantCPUs)*1000, held.cpus, n.cpus),
	}
}

// stopOrRaise is what a user does who needs more than there is, before the name of a flag.
const stopOrRaise = "stop sessions that are not needed (`sluice session list`, `sluice session stop`), or raise"

// shortage is why a tenant has no room for what a session or a sandbox needs, nil when it has. mu is held.
func (p *Places) shortage(tenant string, n need) *schemas.Error {
	q, held, left := &p.quotas, p.byTenant[tenant], p.left(tenant, n)
	switch {
	case n.sessions > 0 && left.sessions == 0:
		return p.crowded(tenant)
	case n.sandboxes == 0:
		return nil
	case p.used >= q.MaxSandboxes:
		return schemas.Errorf(schemas.CodePoolExhausted, "worker %s has %d sandboxes already: try again later, %s --max-sandboxes", p.worker, p.used, stopOrRaise)
	case left.sandboxes == 0 && q.TenantSandboxes == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has used up its share of the sandboxes of worker %s, %d of %d: %s --tenant-sandboxes or --max-sandboxes",
			tenant, p.worker, held.sandboxes, q.MaxSandboxes, stopOrRaise)
	case left.sandboxes == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "tenant %s has used up its quota of sandboxes on worker %s, %d of %d: %s --tenant-sandboxes",
			tenant, p.worker, held.sandboxes, q.TenantSandboxes, stopOrRaise)
	case left.memory == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "the sandboxes of tenant %s on worker %s may use %d bytes of memory, one more may use %d, and its quota is %d: %s --tenant-memory",
			tenant, p.worker, held.memory, n.memory, q.TenantMemoryBytes, stopOrRaise)
	case left.cpus == 0:
		return schemas.Errorf(schemas.CodeLimitExceeded, "the sandboxes of tenant %s on worker %s may use %g CPUs, one more may use %g, and its quota is %d: %s --tenant-cpus",
			tenant, p.worker, float64(held.cpus)/1000, float64(n.cpus)/1000, q.TenantCPUs, stopOrRaise)
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

// Used returns how many sessions and sandboxes the worker has.
func (p *Places) Used() (sessions, sandboxes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sessions), p.used
}

// OfTenant returns how many sessions and sandboxes one tenant may have when no other one has any.
func (q *Quotas) OfTenant() (sessions, sandboxes int) {
	return work.Share(q.MaxSessions, 0, q.TenantSessions), work.Share(q.MaxSandboxes, 0, q.TenantSandboxes)
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

// admit gives a thread its places for a request; own says that it is this worker's already. A session that goes on, and one that is only ended,
// needs no room. Errors: those of TakePlace.
func (t *Thread) admit(own bool, want *Request) *schemas.Error {
	sandbox := want.Sandbox && !own
	if !own && !want.Existing {
		return t.begin(sandbox, want.Waits)
	}
	t.keepBegun()
	if !sandbox {
		return nil
	}
	err := t.TakePlace(want.Waits)
	if err != nil {
		t.withdraw()
	}
	return err
}

// begin gives a thread that does not become this worker's yet a place for its session, and for a sandbox too if it needs one. Errors: those of
// TakePlace.
func (t *Thread) begin(sandbox, waits bool) *schemas.Error {
	n := need{sessions: 1}
	if sandbox {
		n = n.plus(t.need, 1)
	}
	err := t.places.take(t.Tenant, t.ID, n, waits)
	t.begun, t.placed = err == nil, err == nil && sandbox
	return err
}

// keepBegun is begin for a session that goes on, whether there is room or not.
func (t *Thread) keepBegun() {
	t.places.mu.Lock()
	defer t.places.mu.Unlock()
	t.places.put(t.Tenant, key(t.Tenant, t.ID), need{sessions: 1})
	t.begun = true
}

// withdrawLocked takes all places of a thread back that is no longer this worker's, for a caller that holds t.mu and calls freed without it.
func (t *Thread) withdrawLocked() {
	t.releasePlaceLocked()
	if t.begun {
		t.begun = false
		t.places.end(t.Tenant, t.ID)
	}
}

// withdraw is withdrawLocked for a thread that does not become this worker's.
func (t *Thread) withdraw() {
	t.mu.Lock()
	t.withdrawLocked()
	t.mu.Unlock()
	t.places.freed()
}

// releasePlaceLocked takes the thread's place back, for a caller that holds t.mu and calls freed without it.
func (t *Thread) releasePlaceLocked() {
	if t.placed {
		t.placed = false
		t.places.release(t.Tenant, t.ID)
	}
}
