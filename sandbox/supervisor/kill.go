package supervisor

import (
	"iter"
	"slices"
	"syscall"
	"time"
)

const (
	// sweepAgain is when to look again at a tree that was killed and is not gone. On Linux the end of each child wakes the
	// sweep anyway; this is for processes whose end the supervisor is not notified of.
	sweepAgain = 20 * time.Millisecond
	// freezeRounds bounds how often a growing tree is stopped and listed again before it is signaled.
	freezeRounds = 50
	// stopWait is how long a signal that can be handled waits for processes that were sent SIGSTOP and have not stopped: they wait for
	// a CPU, or cannot be interrupted.
	stopWait = 20 * time.Millisecond
)

// A life is what a process can still do.
type life uint8

const (
	gone    life = iota // it has ended, or does not exist
	stopped             // it does not run until SIGCONT
	running
)

func (t *trees) timeOut(p *process, grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !p.reaped {
		p.timedOut = true
		t.kill(p, grace)
	}
}

// kill ends a process's tree. A second call can only shorten the grace of the first. mu is held.
func (t *trees) kill(p *process, grace time.Duration) {
	if p.killed {
		return
	}
	if grace <= 0 {
		t.killNow(p)
		return
	}
	if p.killTimer != nil {
		if end := time.Now().Add(grace); end.Before(p.graceEnd) {
			p.graceEnd = end
			p.killTimer.Reset(grace)
		}
		return
	}
	p.inGrace, p.graceEnd = true, time.Now().Add(grace)
	if p.terminal != none {
		t.signalTree(p, syscall.SIGTERM, syscall.SIGHUP) // an interactive shell ignores SIGTERM
	} else {
		t.signalTree(p, syscall.SIGTERM)
	}
	p.killTimer = time.AfterFunc(grace, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.killNow(p)
	})
}

// killNow sends SIGKILL to the tree; the sweep does the rest. mu is held.
func (t *trees) killNow(p *process) {
	if p.killTimer != nil {
		p.killTimer.Stop()
	}
	p.inGrace, p.killed = false, true
	if !p.reaped {
		// The group first, in one call: its members cannot fork meanwhile.
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		t.destroy(p)
	}
	t.sweep()
}

// signalTree sends signals that can be handled to a process with its descendants and its orphans; for nil, to the orphans without an
// owner and theirs. All of them are stopped before the first one gets one, so that it reaches what is being forked, and nothing that is
// forked to handle it. They go on when it is pending for all, children first: the kernel sends SIGHUP to a stopped group whose parent
// ends. mu is held.
func (t *trees) signalTree(p *process, signals ...syscall.Signal) {
	frozen := t.freeze(p, stopWait)
	for _, pid := range frozen {
		for _, sig := range signals {
			_ = syscall.Kill(pid, sig)
		}
	}
	for _, pid := range slices.Backward(frozen) {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// destroy kills the roots of a process and all their descendants. It may miss what is being forked: the sweep repeats it. mu is held.
func (t *trees) destroy(p *process) (killed []int) {
	killed = t.freeze(p, 0)
	for _, pid := range killed {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return killed
}

// freeze stops the roots of a process and all their descendants, and returns them. It stops each process when it finds it, before it
// lists its children, and repeats until a whole round finds only processes that an earlier round saw stopped or ended: while one of them
// runs, it can fork, or end and leave its child to the supervisor, behind the place where the list is read. It waits up to wait for those
// that have not stopped yet, and for orphans whose owner may be known in a moment. A pid could belong to another process by the time the
// signal is sent, if the process ended and the system used all its pids in those microseconds. mu is held.
func (t *trees) freeze(p *process, wait time.Duration) (frozen []int) {
	const pause = time.Millisecond
	still := make(map[int]bool) // of each process found, whether it was seen stopped or ended
	for range freezeRounds {
		found, moving := false, false
		unsure := func(pid int, now life) {
			if still[pid] {
				return
			}
			moving = true
			if now == gone {
				still[pid], found = true, true
			}
		}
		t.table.walk(t.roots(p, unsure), func(pid int) life {
			seen, known := still[pid]
			if pid <= 1 {
				return gone
			}
			now := t.table.life(pid)
			if seen {
				return now
			}
			if !known && now != gone {
				frozen = append(frozen, pid)
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
			still[pid] = now == gone || known && now == stopped
			found = found || !known || still[pid]
			moving = true
			return now
		})
		switch {
		case !moving:
			return frozen
		case found:
		case wait <= 0:
			return frozen
		default:
			time.Sleep(pause)
			wait -= pause
		}
	}
	return frozen
}

// roots are the live orphans that a process owns, newest first, and then the process, unless it has been reaped; for nil, the orphans
// without an owner. The newest are first because a chain of processes, each of which forks the next one and ends, leaves more behind
// than it has: it must be met before it has gone on. unsure is called with those that may prove to be of the process in a moment, and
// with those that have ended: they may have left a child since they were listed. mu is held.
func (t *trees) roots(p *process, unsure func(pid int, now life)) iter.Seq[int] {
	return func(yield func(pid int) bool) {
		for _, pid := range slices.Backward(t.orphans()) {
			now := t.table.life(pid)
			if now == gone {
				unsure(pid, now)
				continue
			}
			owner, later := t.owner(pid)
			switch {
			case owner == p:
				if !yield(pid) {
					return
				}
			case owner == nil && later:
				unsure(pid, now)
			}
		}
		if p != nil && !p.reaped {
			yield(p.pid)
		}
	}
}

// owner is the process that an orphan belongs to; nil when it is unknown, and then whether it may be known in a moment. The orphan's session
// identifies it, or, where the orphan made a session, its environment. An orphan that has cleared that too belongs to the only process, if
// there is only one. mu is held.
func (t *trees) owner(pid int) (p *process, later bool) {
	if p, ok := t.owners[pid]; ok {
		return p, false
	}
	p, later = t.findOwner(pid)
	if p != nil {
		t.owners[pid] = p
	}
	return p, later
}

func (t *trees) findOwner(pid int) (p *process, later bool) {
	session, _ := t.table.session(pid)
	id := ""
	for pass := range 2 {
		for _, p := range t.procs {
			if p.treeGone {
				continue
			}
			if pass == 0 && p.pid == session || pass == 1 && id != "" && p.id == id {
				return p, false
			}
		}
		if pass == 0 {
			id, later = t.table.owner(pid)
		}
	}
	if len(t.running)+len(t.sweeping) == 1 {
		for _, p := range t.running {
			return p, false
		}
		return t.sweeping[0], false
	}
	return nil, later
}

// reaped records the end of a main process. mu is held.
func (t *trees) reaped(p *process, status syscall.WaitStatus, usage *syscall.Rusage) {
	delete(t.running, p.pid)
	p.reaped, p.status, p.usage = true, status, *usage
	p.ended = p.started.Add(time.Since(p.started))
	// An OOM kill is a SIGKILL; the kernel only counts it. A shell whose program was killed returns that as
	// its exit code. A kill by the supervisor takes precedence: the count may be another process't.
	sigkilled := status.Signaled() && status.Signal() == syscall.SIGKILL || status.Exited() && status.ExitStatus() == 128+int(syscall.SIGKILL)
	p.oom = sigkilled && !p.killed && t.jail.oomKills() > p.oomBefore
	if p.timeout != nil {
		p.timeout.Stop()
	}
	t.sweeping = append(t.sweeping, p)
}

// sweep kills what the processes that have ended left behind. A tree is gone when nothing is left of it, and no orphan may prove to be of it in
// a moment. In the usual case nothing is left, and the sweep costs one read of the list of the supervisor's children. mu is held.
func (t *trees) sweep() {
	if len(t.sweeping) == 0 && !t.terminating && len(t.running) > 0 {
		return
	}
	left := make(map[*process]bool)
	orphans := t.orphans()
	killUnowned, unsure := false, false
	for _, pid := range orphans {
		p, later := t.owner(pid)
		unsure = unsure || later
		if p == nil && !later && len(t.running) == 0 && len(t.sweeping) > 0 {
			p = t.sweeping[len(t.sweeping)-1]
			t.owners[pid] = p
		}
		switch {
		case p == nil: // it may belong to a running process, which is known once that has ended
			killUnowned = killUnowned || t.graceOver || len(t.running) == 0 && !t.terminating
		case p.reaped:
			left[p] = true
		}
	}
	for p := range left {
		if p.inGrace {
			continue
		}
		for _, pid := range t.destroy(p) {
			p.countLeftover(pid)
		}
	}
	if killUnowned {
		t.destroy(nil)
	}
	rest := t.sweeping[:0]
	for _, p := range t.sweeping {
		if (left[p] || unsure) && time.Since(p.ended) < killWait+p.remainingGrace() {
			rest = append(rest, p)
			continue
		}
		p.treeEnded()
	}
	clear(t.sweeping[len(rest):])
	t.sweeping = rest
	if len(orphans) == 0 {
		clear(t.owners)
	} else if t.nextSweep == nil {
		t.nextSweep = time.AfterFunc(sweepAgain, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.nextSweep = nil
			t.sweep()
		})
	}
	t.endIfEmpty()
}

func (p *process) countLeftover(pid int) {
	if p.leftovers == nil {
		p.leftovers = make(map[int]struct{})
	}
	p.leftovers[pid] = struct{}{}
}

// remainingGrace is how long the grace of a kill lets the tree outlive its main process.
func (p *process) remainingGrace() time.Duration { return max(0, p.graceEnd.Sub(p.ended)) }

// treeEnded is called when nothing of the tree is left. The trees' mu is held.
func (p *process) treeEnded() {
	p.treeGone, p.inGrace = true, false
	if p.killTimer != nil {
		p.killTimer.Stop()
	}
	p.hangUp()
	p.out[0].drain()
	p.out[1].drain()
	close(p.gone)
}

// terminate ends every process: SIGTERM, the grace, SIGKILL. A second call can only shorten the grace of the first.
func (t *trees) terminate(grace time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.terminating
	t.terminating = true
	for _, p := range t.running {
		t.kill(p, grace)
	}
	for _, p := range t.sweeping {
		t.kill(p, grace)
	}
	if first && grace > 0 {
		t.signalTree(nil, syscall.SIGTERM)
	}
	if grace <= 0 {
		t.graceOver = true
	} else {
		time.AfterFunc(grace, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.graceOver = true
			t.sweep()
		})
	}
	t.sweep()
}

// endIfEmpty ends a terminated supervisor that has no process, no child, and no exit record to send. mu is held.
func (t *trees) endIfEmpty() {
	if !t.terminating || t.done || len(t.running)+len(t.sweeping) > 0 {
		return
	}
	for _, p := range t.procs {
		if !p.reported {
			return
		}
	}
	if len(t.orphans()) > 0 {
		return
	}
	t.done = true
	close(t.ended)
	t.onEnd()
}
