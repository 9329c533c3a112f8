package session

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func newTestPlaces(q Quotas) *Places {
	q.MaxSessions = cmp.Or(q.MaxSessions, 1000)
	return NewPlaces(q, "w1", func() {})
}

// fill gives threads of a tenant places until there are no more, and returns how many, and why no more.
func (p *Places) fill(tenant string, n need) (got int, why *schemas.Error) {
	for {
		if why = p.take(tenant, fmt.Sprint(tenant, len(p.held)), n, true); why != nil {
			return got, why
		}
		got++
	}
}

// Issue 14, 4: whatever sandboxes a tenant has, the next one may have some, and those of one that ends are the others'.
func TestSandboxesAreShared(t *testing.T) {
	t.Parallel()
	p, one := newTestPlaces(Quotas{MaxSandboxes: 64}), need{sandboxes: 1, memory: 512 << 20, cpus: 1000}
	got, why := p.fill("a", one)
	testkit.Equal(t, "sandboxes of a tenant that is alone", got, 56)
	testkit.WantCode(t, why, schemas.CodeLimitExceeded)
	testkit.Contains(t, "why", why.Message, "tenant a has used up its share of the sandboxes of worker w1, 56 of 64: ")
	got, _ = p.fill("b", one)
	testkit.Equal(t, "sandboxes of the next one", got, 7)
	got, _ = p.fill("c", one)
	testkit.Equal(t, "sandboxes of the third", got, 1)
	_, why = p.fill("d", one)
	testkit.WantCode(t, why, schemas.CodePoolExhausted)
	testkit.Equal(t, "room of a thread with a sandbox", p.Room("a", "a0") > 0, true)
	testkit.Equal(t, "room of another one", p.Room("a", "new"), 0)
	for k := range p.held {
		tenant := k[:1]
		p.release(tenant, k[2:])
	}
	testkit.Equal(t, "what is counted of those that have ended", p.used+len(p.held)+len(p.byTenant), 0)
}

// Issue 14, 4: the limits of a tenant's sandboxes add up to no more than its quotas. What waits is tried again when there is room for it.
func TestQuotasOfMemoryAndCPUs(t *testing.T) {
	t.Parallel()
	p := newTestPlaces(Quotas{MaxSandboxes: 64, TenantSandboxes: 60, TenantMemoryBytes: 4 << 30, TenantCPUs: 3})
	small, large := need{sandboxes: 1, memory: 1 << 30, cpus: 100}, need{sandboxes: 1, memory: 3 << 30, cpus: 100}
	for _, n := range []need{{sandboxes: 1, memory: 5 << 30}, {sandboxes: 1, cpus: 3001}} {
		testkit.WantCode(t, p.quotas.fits("w1", "big", n), schemas.CodeLimitExceeded)
	}
	if err := p.quotas.fits("w1", "default", large); err != nil {
		t.Errorf("a sandbox within the quotas: %v", err)
	}
	got, why := p.fill("a", need{sandboxes: 1, cpus: 500})
	testkit.Equal(t, "sandboxes of half a CPU", got, 6)
	testkit.Contains(t, "why", why.Message, "may use 3 CPUs, one more may use 0.5, and its quota is 3: ")
	got, why = p.fill("b", small)
	testkit.Equal(t, "sandboxes of 1 GiB", got, 4)
	testkit.Contains(t, "why", why.Message, "may use 4294967296 bytes of memory, one more may use 1073741824, and its quota is 4294967296: ")
	testkit.WantCode(t, p.take("b", "large", large, true), schemas.CodeLimitExceeded)
	p.release("b", "b6")
	testkit.Equal(t, "room of one that waits for 1 GiB", p.Room("b", "b10"), 1)
	testkit.Equal(t, "room of one that waits for 3 GiB", p.Room("b", "large"), 0)
	p.release("b", "b7")
	p.release("b", "b8")
	testkit.Equal(t, "room of one that waits for 3 GiB, when there is", p.Room("b", "large"), 1)
}

// Issue 14, 4: whatever sessions a tenant has, with sandboxes or without, the next one may have some.
func TestSessionsAreShared(t *testing.T) {
	t.Parallel()
	p, one := newTestPlaces(Quotas{MaxSessions: 16, MaxSandboxes: 64}), need{sessions: 1}
	begin := func(tenant string, most int) (why *schemas.Error) {
		t.Helper()
		for i := range most {
			if why := p.take(tenant, fmt.Sprint(tenant, i), one, false); why != nil {
				t.Fatalf("session %d of tenant %s: %v", i, tenant, why)
			}
		}
		return p.take(tenant, "more", one, false)
	}
	why := begin("a", 14)
	testkit.WantCode(t, why, schemas.CodeLimitExceeded)
	testkit.Contains(t, "why", why.Message, "tenant a has used up its share of the sessions of worker w1, 14 of 16: ")
	testkit.Equal(t, "room of a session without a sandbox", p.Room("a", "a0") > 0, true)
	testkit.Equal(t, "room of a new one", p.Room("a", "new"), 0)
	why = begin("b", 2)
	testkit.WantCode(t, why, schemas.CodePoolExhausted)
	testkit.Contains(t, "why", why.Message, "worker w1 has 16 sessions already: ")
	for k := range p.sessions {
		p.end(k[:1], k[2:])
	}
	testkit.Equal(t, "what is counted of those that have ended", len(p.sessions)+len(p.byTenant), 0)
	p.quotas.TenantSessions = 3
	why = begin("a", 3)
	testkit.Contains(t, "why", why.Message, "tenant a has used up its quota of sessions on worker w1, 3 of 3: ")
}
