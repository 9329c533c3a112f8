package jail

import (
	"sync"
	"time"
)

const (
	// prestartedCount is how many pending jails are kept ready: enough for the start of a burst. Each costs the kernel a few
	// hundred KiB.
	prestartedCount = 2
	// refillDelay leaves the CPU to the first command of the jail that was just created.
	refillDelay = 10 * time.Millisecond
)

// prestarted keeps pending jails ready, which saves Create the time of the setup program (docs/adr/0015). Each has its own user id.
// The methods of a nil *prestarted do nothing.
type prestarted struct {
	users   *userIDs
	start   func(uid int) (*pendingJail, error)
	closing chan struct{}
	fillers sync.WaitGroup

	mu      sync.Mutex
	ready   []*pendingJail
	used    bool // refill was called before
	filling bool // a filler runs
}

func newPrestarted(users *userIDs, start func(uid int) (*pendingJail, error)) *prestarted {
	return &prestarted{users: users, start: start, closing: make(chan struct{})}
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
		s.users.release(first.uid)
	}
}

// refill starts what is missing, after a delay. It does nothing for a provider's first jail: a provider with a second one is likely
// to create more. It must not be called after close.
func (s *prestarted) refill() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.used
	s.used = true
	if first || s.filling || len(s.ready) >= prestartedCount {
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
		uid, err := s.users.allocate()
		var j *pendingJail
		if err == nil {
			if j, err = s.start(uid); err != nil {
				s.users.release(uid)
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
		select {
		case <-s.closing:
		default:
			more = len(s.ready) < prestartedCount
		}
	}
	s.filling = more
	return more
}

func (s *prestarted) close() {
	if s == nil {
		return
	}
	close(s.closing)
	s.fillers.Wait()
	for _, j := range s.ready {
		j.discard()
	}
}
