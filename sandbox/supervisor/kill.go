package supervisor

import (
	"syscall"
	"time"
)

const (
	// sweepAgain is when to look again at a tree that was killed and is not gone. On Linux the end of each child wakes the
	// sweep anyway; this is for those whose end is not told.
	sweepAgain = 20 * time.Millisecond
	// freezeRounds bounds how often a growing tree is stopped and listed again before it is killed.
	freezeRounds = 50
)

// timeOut is a process's timeout.
func (s *supervisor) timeOut(p *process, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.reaped {
		p.timedOut = true
		s.kill(p, grace)
	}
}

// kill ends a process's tree. A second call can only hasten the first. mu is held.
func (s *supervisor) kill(p *process, grace time.Duration) {
	if p.killed {
		return
	}
	if grace <= 0 {
		s.killNow(p)
		return
	}
	if p.killing != nil {
		if until := time.Now().Add(grace); until.Before(p.until) {
			p.until = until
			p.killing.Reset(grace)
		}
		return
	}
	p.mercy, p.until = true, time.Now().Add(grace)
	s.tell(s.tree(p), syscall.SIGTERM)
	p.killing = time.AfterFunc(grace, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.killNow(p)
	})
}

// killNow is SIGKILL to the tree; the sweep does the rest. mu is held.
func (s *supervisor) killNow(p *process) {
	if p.killing != nil {
		p.killing.Stop()
	}
	p.mercy, p.killed = false, true
	if !p.reaped {
		// The group first, in one call: whoever is in it cannot fork meanwhile.
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		s.destroy(func() []int { return s.roots(p) })
	}
	s.sweep()
}

// tell sends a signal that can be handled, and wakes those who are stopped so that they can.
func (s *supervisor) tell(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// destroy kills these and everything below them. Each is stopped when it is found, before its children are listed: a
// stopped process does not fork, so that its list is final. It goes round until nothing new is found, since whoever was not
// stopped yet may have forked meanwhile. A pid could be another's by the time the signal goes out, if the process ended and
// the system counted through all its pids in those microseconds.
func (s *supervisor) destroy(roots func() []int) (killed []int) {
	known := make(map[int]struct{})
	for range freezeRounds {
		grown := false
		s.table.walk(roots(), func(pid int) {
			if _, ok := known[pid]; ok || pid <= 1 {
				return
			}
			known[pid] = struct{}{}
			if s.table.zombie(pid) {
				return
			}
			grown = true
			killed = append(killed, pid)
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		})
		if !grown {
			break
		}
	}
	for _, pid := range killed {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return killed
}

// roots are a process, unless it has been reaped, and the orphans that are its own; for nil, the orphans that are nobody's.
// mu is held.
func (s *supervisor) roots(p *process) (pids []int) {
	if p != nil && !p.reaped {
		pids = append(pids, p.pid)
	}
	for _, pid := range s.strays() {
		if s.owner(pid) == p {
			pids = append(pids, pid)
		}
	}
	return pids
}

// tree is a process with its descendants and its orphans. mu is held.
func (s *supervisor) tree(p *process) (pids []int) {
	s.table.walk(s.roots(p), func(pid int) { pids = append(pids, pid) })
	return pids
}

// owner is the process an orphan belongs to; nil when nobody can tell. Its session says it, or, where it made one of its
// own, its environment. An orphan that has cleared that too belongs to the one process there is, if there is one. mu is
// held.
func (s *supervisor) owner(pid int) *process {
	if p, ok := s.owners[pid]; ok {
		return p
	}
	p := s.findOwner(pid)
	if p != nil {
		s.owners[pid] = p
	}
	return p
}

func (s *supervisor) findOwner(pid int) *process {
	session, _ := s.table.session(pid)
	id := ""
	for pass := range 2 {
		for _, p := range s.procs {
			if p.over {
				continue
			}
			if pass == 0 && p.pid == session || pass == 1 && id != "" && p.id == id {
				return p
			}
		}
		id = s.table.owner(pid)
	}
	if len(s.mains)+len(s.sweeping) == 1 {
		for _, p := range s.mains {
			return p
		}
		return s.sweeping[0]
	}
	return nil
}

// mainEnded takes a main process's end. mu is held.
func (s *supervisor) mainEnded(p *process, status syscall.WaitStatus, usage *syscall.Rusage) {
	delete(s.mains, p.pid)
	p.reaped, p.status, p.usage = true, status, *usage
	p.ended = p.started.Add(time.Since(p.started))
	// The kernel kills with SIGKILL and says nothing; it only counts. A shell whose program it has killed passes that on as
	// its exit code. A kill of the supervisor's own comes first: the count may be another process's.
	struck := status.Signaled() && status.Signal() == syscall.SIGKILL || status.Exited() && status.ExitStatus() == 128+int(syscall.SIGKILL)
	p.oom = struck && !p.killed && s.warden.kills() > p.oomBefore
	if p.timeout != nil {
		p.timeout.Stop()
	}
	s.sweeping = append(s.sweeping, p)
}

// sweep looks what the processes that have ended left behind, and kills it. A process is over when nothing is left. With
// nothing left, which is nearly always so, it costs one read of the list of the supervisor's own children. mu is held.
func (s *supervisor) sweep() {
	if len(s.sweeping) == 0 && !s.ending && len(s.mains) > 0 {
		return
	}
	left := make(map[*process]bool)
	strays := s.strays()
	nobodys := false
	for _, pid := range strays {
		p := s.owner(pid)
		if p == nil && len(s.mains) == 0 && len(s.sweeping) > 0 {
			p = s.sweeping[len(s.sweeping)-1]
			s.owners[pid] = p
		}
		switch {
		case p == nil: // with others running, theirs perhaps: that will be known when they have ended
			nobodys = nobodys || s.hard || len(s.mains) == 0 && !s.ending
		case p.reaped:
			left[p] = true
		}
	}
	for p := range left {
		if p.mercy {
			continue
		}
		for _, victim := range s.destroy(func() []int { return s.roots(p) }) {
			p.left(victim)
		}
	}
	if nobodys {
		s.destroy(func() []int { return s.roots(nil) })
	}
	rest := s.sweeping[:0]
	for _, p := range s.sweeping {
		if left[p] && time.Since(p.ended) < stubborn+p.extra() {
			rest = append(rest, p)
			continue
		}
		s.finish(p)
	}
	clear(s.sweeping[len(rest):])
	s.sweeping = rest
	if len(strays) == 0 {
		clear(s.owners)
	} else if s.again == nil {
		s.again = time.AfterFunc(sweepAgain, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.again = nil
			s.sweep()
		})
	}
	s.settle()
}

// left counts one that was left behind, once.
func (p *process) left(pid int) {
	if p.seen == nil {
		p.seen = make(map[int]struct{})
	}
	p.seen[pid] = struct{}{}
}

// extra is how much longer the grace of a kill lets the tree live after its main process.
func (p *process) extra() time.Duration { return max(0, p.until.Sub(p.ended)) }

// finish marks a process as over: nothing of its tree is left. mu is held.
func (s *supervisor) finish(p *process) {
	p.over, p.mercy = true, false
	if p.killing != nil {
		p.killing.Stop()
	}
	p.out[0].finish()
	p.out[1].finish()
	close(p.gone)
}

// terminate ends everything: SIGTERM, the grace, SIGKILL. A second call can only hasten the first.
func (s *supervisor) terminate(grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.ending
	s.ending = true
	for _, p := range s.mains {
		s.kill(p, grace)
	}
	for _, p := range s.sweeping {
		s.kill(p, grace)
	}
	if first && grace > 0 {
		var rest []int
		s.table.walk(s.roots(nil), func(pid int) { rest = append(rest, pid) })
		s.tell(rest, syscall.SIGTERM)
	}
	if grace <= 0 {
		s.hard = true
	} else {
		time.AfterFunc(grace, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hard = true
			s.sweep()
		})
	}
	s.sweep()
}

// settle ends the supervisor once it is terminated and empty: no process, no child, every exit record sent. mu is held.
func (s *supervisor) settle() {
	if !s.ending || s.closed || len(s.mains)+len(s.sweeping) > 0 {
		return
	}
	for _, p := range s.procs {
		if !p.sent {
			return
		}
	}
	if len(s.strays()) > 0 {
		return
	}
	s.closed = true
	close(s.over)
	if s.conn != nil {
		s.conn.hangUp()
	}
}
