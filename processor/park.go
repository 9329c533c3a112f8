package processor

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// parkAfter is how long a session may run nothing until its sandbox is stopped; 0 for ever.
func (t *thread) parkAfter() time.Duration {
	return time.Duration(t.template.Session.ParkAfterMS) * time.Millisecond
}

// parkable says whether the thread's sandbox is there and runs nothing for long enough. t.mu is held.
func (t *thread) parkable(now time.Time) bool {
	after, m := t.parkAfter(), t.making
	if after == 0 || t.busy > 0 || t.ending != nil || t.parking != nil || m == nil || now.Sub(t.last) < after {
		return false
	}
	select {
	case <-m.done:
		return m.err == nil && m.life.state == schemas.SandboxRunning
	default:
		return false
	}
}

// park stops the sandbox of a session that runs nothing. The session and its workspace stay; the next command makes another
// sandbox, which waits until this one is gone.
func (w *Worker) park(t *thread) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.parkable(time.Now()) {
		return // a command came since
	}
	m, gone := t.making, make(chan struct{})
	if !w.errands.do(func() { w.stopParked(t, m, gone) }) {
		return
	}
	t.making, t.parking = nil, gone
	w.noteLocked(t, note{edit: func(s *schemas.Session) { s.Parked = true }})
}

func (w *Worker) stopParked(t *thread, m *making, gone chan struct{}) {
	w.calm <- struct{}{}
	defer func() { <-w.calm }()
	ctx, cancel := context.WithTimeout(w.bg, w.cfg.patience.end)
	defer cancel()
	_ = m.sb.Terminate(ctx, 0) // its error is ctx's: the supervisor ends with the worker all the same
	w.occur(t, m, occurEnd, nil)
	t.mu.Lock()
	t.parking = nil
	t.mu.Unlock()
	close(gone)
}
