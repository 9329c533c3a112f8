package jail

import (
	"cmp"
	"sync"
	"time"
)

const (
	// prestartedCount is the default number of pending jails that are kept ready: enough for the start of a burst.
	prestartedCount = 2
	// refillDelay leaves the CPU to the first command of the jail that was just created.
	refillDelay = 10 * time.Millisecond
)

// prestarted keeps pending jails ready, which saves Create the time of the setup program (docs/adr/0015). Each has its own user id.
// The methods of a nil *prestarted do nothing.
type prestarted struct {
	size    int  // the number of pending jails
	early   bool // the first ones are started before the first jail
	users   *jailUsers
	start   func(uid int) (*pendingJail, error)
	closing chan struct{}
	fillers sync.WaitGroup

	mu      sync.Mutex
	ready   []*pendingJail
	used    bool // refill was called before
	filling bool // a filler runs
	closed  bool
}

// newPrestarted keeps size jails ready, from the first refill on; with 0, prestartedCount from the second one on.
func newPrestarted(size int, users *jailUsers, start func(uid int) (*pendingJail, error)) *prestarted {
	return &prestarted{size: cmp.Or(size, prestartedCount), early: size > 0, users: users, start: start, closing: make(chan struct{})}
}

// take returns a pending jail, or nil when none is ready. The caller releases its user id.
func (s *prestarted) take() *pendingJail {
	if s == nil {
		return nil
	}
	for {
		s.mu.Lock()
		if len(s.ready) == 0 {
			s.mu.Unlock()
			return nil
		}
		first := s.ready[0]
		s.ready = s.ready[1:]
		s.mu.Unlock()
		if !first.ended() {
			return first
		}
		first.discard()
		s.users.Release(first.uid)
	}
}

// refill starts what is missing, after a delay. Without a configured size it does nothing for a provider's first jail: a provider with a
// second one is likely to create more.
func (s *prestarted) refill() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.used && !s.early
	s.used = true
	if first || s.filling || s.closed || len(s.ready) >= s.size {
		return
	}
	s.filling = true
	s.fillers.Go(s.fill)
}

func (s *prestarted) fill() {
	delay := time.NewTimer(refillDelay)
	defer delay.Stop()
	select {
	case <-s.closing:
		return
	case <-delay.C:
	}
	for more := true; more; {
		uid, err := s.users.Allocate(0)
		var j *pendingJail
		if err == nil {
			if j, err = s.start(uid); err != nil {
				s.users.Release(uid)
			}
		}
		more = s.add(j, err) // Create starts a jail by itself then, and returns the error
	}
}

// add adds a pending jail and reports whether more are missing. An error ends the filling.
func (s *prestarted) add(j *pendingJail, err error) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.ready = append(s.ready, j)
		more = !s.closed && len(s.ready) < s.size
	}
	s.filling = more
	return more
}

func (s *prestarted) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.closing)
	s.fillers.Wait()
	for _, j := range s.ready {
		j.discard()
	}
}
