package hooks

import (
	"container/list"
	"context"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// maxOccasions is the number of occasions to remember. An occasion is repeated within a few minutes; 4096 of them take about 2 MB.
const maxOccasions = 4096

// occasionKey identifies one run of a phase.
type occasionKey struct {
	tenant, thread string
	phase          schemas.Phase
	id             string
}

// occasion is the progress of one run of a phase. Only the goroutine that acquired it may use done and attempts.
type occasion struct {
	key      occasionKey
	done     map[string]bool // hooks that succeeded
	attempts map[string]int

	lock    chan struct{} // holds one token while the occasion is free
	users   int           // goroutines that hold it or wait for it; guarded by occasions.mu
	element *list.Element
}

// occasions remembers occasions up to a number, and lets one goroutine at a time run each. It drops the oldest first.
type occasions struct {
	max int

	mu    sync.Mutex
	byKey map[occasionKey]*occasion
	order *list.List // of *occasion, the oldest first
}

func newOccasions(limit int) *occasions {
	return &occasions{max: limit, byKey: make(map[occasionKey]*occasion), order: list.New()}
}

// acquire waits until no other goroutine runs the occasion. The caller must release it. The error is ctx's.
func (s *occasions) acquire(ctx context.Context, key occasionKey) (*occasion, error) {
	s.mu.Lock()
	o := s.byKey[key]
	if o == nil {
		o = &occasion{key: key, done: make(map[string]bool), attempts: make(map[string]int), lock: make(chan struct{}, 1)}
		o.lock <- struct{}{}
		o.element = s.order.PushBack(o)
		s.byKey[key] = o
		s.evict()
	}
	o.users++
	s.mu.Unlock()
	select {
	case <-o.lock:
		return o, nil
	case <-ctx.Done():
		s.mu.Lock()
		o.users--
		s.mu.Unlock()
		return nil, ctx.Err()
	}
}

func (s *occasions) release(o *occasion) {
	s.mu.Lock()
	o.users--
	s.mu.Unlock()
	o.lock <- struct{}{}
}

// evict drops the oldest unused occasions above the limit, but never the newest. mu is held.
func (s *occasions) evict() {
	for e := s.order.Front(); e != nil && s.order.Len() > s.max; {
		o, next := e.Value.(*occasion), e.Next()
		if o.users == 0 && next != nil {
			s.remove(o)
		}
		e = next
	}
}

// forget drops the unused occasions of a thread.
func (s *occasions) forget(tenant, thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.byKey {
		if key.tenant == tenant && key.thread == thread && o.users == 0 {
			s.remove(o)
		}
	}
}

// remove drops an occasion. mu is held.
func (s *occasions) remove(o *occasion) {
	s.order.Remove(o.element)
	delete(s.byKey, o.key)
}
