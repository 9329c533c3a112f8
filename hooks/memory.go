package hooks

import (
	"container/list"
	"context"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// maxOccasions is how many occasions are remembered: enough that one which is delivered again, a few minutes at most after the
// first time, is known, in about 2 MB.
const maxOccasions = 4096

// occasion is what hooks run once for.
type occasion struct {
	tenant, thread string
	phase          schemas.Phase
	id             string
}

func occasionOf(d *schemas.HookData) occasion {
	return occasion{d.Conversation.Tenant, d.Conversation.Thread, d.Phase, d.Occasion}
}

// past is what has run on an occasion. It belongs to whoever entered.
type past struct {
	of       occasion
	done     map[string]bool
	attempts map[string]int

	turn  chan struct{} // holds one token while nobody is in
	users int           // who is in or waits; guarded by memory.mu
	place *list.Element
}

// memory remembers occasions, the oldest given up first, and lets one goroutine at a time into each.
type memory struct {
	max int

	mu    sync.Mutex
	known map[occasion]*past
	order *list.List // of *past, the oldest in front
}

func newMemory(most int) *memory {
	return &memory{max: most, known: make(map[occasion]*past), order: list.New()}
}

// enter waits until nobody else runs this occasion. The caller leaves. The error is ctx's.
func (m *memory) enter(ctx context.Context, of occasion) (*past, error) {
	m.mu.Lock()
	p := m.known[of]
	if p == nil {
		p = &past{of: of, done: make(map[string]bool), attempts: make(map[string]int), turn: make(chan struct{}, 1)}
		p.turn <- struct{}{}
		p.place = m.order.PushBack(p)
		m.known[of] = p
		m.shrink()
	}
	p.users++
	m.mu.Unlock()
	select {
	case <-p.turn:
		return p, nil
	case <-ctx.Done():
		m.mu.Lock()
		p.users--
		m.mu.Unlock()
		return nil, ctx.Err()
	}
}

func (m *memory) leave(p *past) {
	m.mu.Lock()
	p.users--
	m.mu.Unlock()
	p.turn <- struct{}{}
}

// shrink gives up the oldest occasions that nobody is in. mu is held.
func (m *memory) shrink() {
	for e := m.order.Front(); e != nil && m.order.Len() > m.max; {
		p, next := e.Value.(*past), e.Next()
		if p.users == 0 && next != nil {
			m.order.Remove(e)
			delete(m.known, p.of)
		}
		e = next
	}
}

// forget gives up what is known of a thread, but for what is running.
func (m *memory) forget(tenant, thread string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for of, p := range m.known {
		if of.tenant == tenant && of.thread == thread && p.users == 0 {
			m.order.Remove(p.place)
			delete(m.known, of)
		}
	}
}
