package run

import (
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// slots counts the places for processes. A tenant may hold at most work.ShareFactor times those that it leaves free, and a thread the same of
// those that it leaves to its tenant: however many one of them holds, the next one finds some. The callers' lock guards it.
type slots struct {
	most, mostOfTenant, mostOfThread int // the last two are 0 for the share

	used      int
	byTenant  map[string]int
	byThreads map[threadOf]int
}

type threadOf struct{ tenant, thread string }

func newSlots(cfg *Config) slots {
	return slots{
		most: cfg.MaxProcesses, mostOfTenant: cfg.MaxTenantProcesses, mostOfThread: cfg.MaxThreadProcesses,
		byTenant: make(map[string]int), byThreads: make(map[threadOf]int),
	}
}

// add counts n more places of a thread, or fewer.
func (s *slots) add(tenant, thread string, n int) {
	s.used += n
	addTo(s.byTenant, tenant, n)
	addTo(s.byThreads, threadOf{tenant, thread}, n)
}

func addTo[K comparable](counts map[K]int, k K, n int) {
	if counts[k] += n; counts[k] == 0 {
		delete(counts, k)
	}
}

func (s *slots) free() int { return max(s.most-s.used, 0) }

// ofTenant returns how many more places a tenant may take.
func (s *slots) ofTenant(tenant string) int {
	return work.Share(s.free(), s.byTenant[tenant], s.mostOfTenant)
}

// ofThread returns how many more places a thread may take.
func (s *slots) ofThread(tenant, thread string) int {
	return work.Share(s.ofTenant(tenant), s.byThreads[threadOf{tenant, thread}], s.mostOfThread)
}

// shortage is why a thread has no room.
func (s *slots) shortage(worker, tenant, thread string) *schemas.Error {
	switch {
	case s.free() == 0:
		return schemas.Errorf(schemas.CodePoolExhausted, "worker %s runs %d processes already: try again later, or raise --max-processes", worker, s.most)
	case s.ofTenant(tenant) == 0:
		return schemas.Errorf(schemas.CodePoolExhausted, "tenant %s runs %d processes on worker %s already, its share of %d: try again later, or raise --tenant-processes or --max-processes",
			tenant, s.byTenant[tenant], worker, s.most)
	default:
		return schemas.Errorf(schemas.CodePoolExhausted, "thread %s runs %d processes on worker %s already, its share of %d: try again later, or raise --thread-processes or --max-processes",
			thread, s.byThreads[threadOf{tenant, thread}], worker, s.most)
	}
}
