package keymutex

import "sync"

// Mutex is a mutex for each key in use. Its zero value is ready to use.
type Mutex struct {
	mu   sync.Mutex
	held map[string]*keyMutex
}

type keyMutex struct {
	mu    sync.Mutex
	users int
}

// Lock holds a key until the function it returns is called.
func (m *Mutex) Lock(key string) (unlock func()) {
	m.mu.Lock()
	if m.held == nil {
		m.held = make(map[string]*keyMutex)
	}
	k := m.held[key]
	if k == nil {
		k = &keyMutex{}
		m.held[key] = k
	}
	k.users++
	m.mu.Unlock()
	k.mu.Lock()
	return func() {
		k.mu.Unlock()
		m.mu.Lock()
		defer m.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(m.held, key)
		}
	}
}
