package hooks

import (
	"fmt"
	"testing"
)

func TestMemoryIsBoundedAndForgets(t *testing.T) {
	m := newMemory(10)
	held, err := m.enter(t.Context(), occasion{thread: "held"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		p, err := m.enter(t.Context(), occasion{thread: "t", id: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		p.done["x"] = true
		m.leave(p)
	}
	if len(m.known) != 10 || m.order.Len() != 10 || m.known[held.of] != held {
		t.Errorf("%d occasions are known", len(m.known))
	}
	if p := m.known[occasion{thread: "t", id: "99"}]; p == nil || !p.done["x"] {
		t.Error("the newest occasion is forgotten")
	}
	m.forget("", "t")
	if len(m.known) != 1 || m.order.Len() != 1 {
		t.Errorf("%d occasions after forgetting the thread", len(m.known))
	}
	m.leave(held)
	m.forget("", "held")
	if len(m.known) != 0 {
		t.Error("not forgotten")
	}
}
