package run

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// take takes places for a thread until it gets no more, and returns how many it got.
func take(s *slots, tenant, thread string) (n int) {
	for s.ofThread(tenant, thread) > 0 {
		s.add(tenant, thread, 1)
		n++
	}
	return n
}

// Issue 14, 4: whatever a tenant or a thread takes, the next one finds places, and those of one that ends are the others'.
func TestSlotsAreShared(t *testing.T) {
	t.Parallel()
	s := newSlots(&Config{MaxProcesses: 256})
	testkit.Equal(t, "room of a tenant that is alone", s.ofTenant("a"), 224)
	testkit.Equal(t, "room of its only thread", s.ofThread("a", "t0"), 196)
	testkit.Equal(t, "places of the thread", take(&s, "a", "t0"), 196)
	testkit.Equal(t, "places of the next one", take(&s, "a", "t1"), 25)
	for i := range 20 {
		take(&s, "a", fmt.Sprint("t", i+2))
	}
	testkit.Equal(t, "places of the tenant", s.byTenant["a"], 224)
	if why := s.shortage("w1", "a", "t9"); why.Code != schemas.CodePoolExhausted || !strings.Contains(why.Message, "tenant a runs 224 processes") {
		t.Errorf("error = %v, want that of the tenant's share", why)
	}
	for i, want := range []int{28, 4} {
		tenant := fmt.Sprint("next", i)
		got := 0
		for j := range 40 {
			got += take(&s, tenant, fmt.Sprint(j))
		}
		testkit.Equal(t, "places of "+tenant, got, want)
	}
	testkit.Equal(t, "room of the first tenant", s.ofThread("a", "new"), 0)
	s.add("a", "t0", -196)
	testkit.Equal(t, "room of the last tenant", s.ofTenant("next1") > 100, true)
	for name, n := range s.byThreads {
		s.add(name.tenant, name.thread, -n)
	}
	testkit.Equal(t, "what is counted of those that have ended", s.used+len(s.byTenant)+len(s.byThreads), 0)
}

// A worker with few places, or with bounds that were set, gives them to those that come first.
func TestFewSlotsAreNotShared(t *testing.T) {
	t.Parallel()
	for most := 1; most <= work.ShareFactor; most++ {
		s := newSlots(&Config{MaxProcesses: most})
		testkit.Equal(t, "places", take(&s, "a", "t"), most)
	}
	s := newSlots(&Config{MaxProcesses: 64, MaxTenantProcesses: 64, MaxThreadProcesses: 20})
	testkit.Equal(t, "places of a thread", take(&s, "a", "t"), 20)
	if why := s.shortage("w1", "a", "t"); !strings.Contains(why.Message, "thread t runs 20 processes") {
		t.Errorf("error = %v, want that of the thread's share", why)
	}
	testkit.Equal(t, "room of its tenant", s.ofTenant("a"), 44)
}
