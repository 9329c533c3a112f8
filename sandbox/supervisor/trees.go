package supervisor

import (
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// trees are the processes of the sandbox, each with all that it started. mu guards the fields below it. It is held over fork and over
// reaping, so that neither sees the other half done.
type trees struct {
	table  *processTable // the system's view of processes
	jail   *jailSupport
	forked chan struct{} // wakes the reaper, which waits here while there is no child
	ended  chan struct{} // closed when a terminated sandbox is empty
	onEnd  func()        // is called then

	mu          sync.Mutex
	procs       map[uint64]*process // by handle: running, or retained until released
	running     map[int]*process    // by pid: not yet reaped
	sweeping    []*process          // reaped, their trees not yet gone
	owners      map[int]*process    // of orphans, as far as known
	nextSweep   *time.Timer         // nil while none is scheduled
	terminating bool
	graceOver   bool // the grace of the termination has passed
	done        bool // ended is closed
}

func newTrees(jail *jailSupport) *trees {
	return &trees{
		jail: jail, forked: make(chan struct{}, 1), ended: make(chan struct{}),
		procs: make(map[uint64]*process), running: make(map[int]*process), owners: make(map[int]*process),
	}
}

func (t *trees) hasEnded() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// admit refuses a process in a terminating sandbox and a duplicate.
func (t *trees) admit(m *wire.Spawn) (wire.Cause, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.terminating {
		return wire.CauseEnding, "the sandbox is being terminated"
	}
	for handle, p := range t.procs {
		if handle == m.Handle || p.id == m.ID {
			return wire.CauseDuplicate, "process " + m.ID + " already exists"
		}
	}
	return 0, ""
}

// fork starts the program and registers p, in one step for the reaper. syscall.ForkExec itself waits for a child
// whose exec failed; the reaper cannot take that child first, because it only reaps with mu held.
func (t *trees) fork(p *process, m *wire.Spawn, program string, ends *pipes) error {
	argv := append([]string{m.Path}, m.Args...)
	oomKills := t.jail.oomKills()
	attr := &syscall.ProcAttr{Dir: m.Dir, Env: m.Env, Files: ends.files[:], Sys: childAttr(ends.terminal != none)}
	for try := 0; ; try++ {
		t.mu.Lock()
		t.jail.useProcessScore()
		pid, err := syscall.ForkExec(program, argv, attr)
		t.jail.useOwnScore()
		if err != nil {
			t.mu.Unlock()
			if err == syscall.ETXTBSY && try < busyTries {
				time.Sleep(busyWait)
				continue
			}
			return err
		}
		p.pid, p.started = pid, time.Now()
		p.oomBefore = oomKills
		for i := range p.out {
			p.out[i].open(p, wire.Stdout+byte(i), ends.ours[1+i], ends.fds[1+i])
		}
		if m.Stdin {
			p.stdin = newInput(p, ends.ours[0], ends.fds[0])
		}
		t.procs[p.handle], t.running[pid] = p, p
		if m.Timeout > 0 {
			p.timeout = time.AfterFunc(time.Duration(m.Timeout), func() { t.timeOut(p, time.Duration(m.Grace)) })
		}
		t.mu.Unlock()
		t.watch(p)
		return nil
	}
}

func (t *trees) find(handle uint64) *process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.procs[handle]
}

// signal signals the group of a process that has not been reaped: until then the kernel does not reuse its pid.
func (t *trees) signal(m *wire.Signal) wire.SignalResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.procs[m.Handle]
	if p == nil || p.reaped {
		return wire.SignalGone
	}
	if m.Signal == 0 || m.Signal > 64 {
		return wire.SignalBad
	}
	switch syscall.Kill(-p.pid, syscall.Signal(m.Signal)) {
	case nil:
		return wire.SignalSent
	case syscall.ESRCH:
		return wire.SignalGone
	case syscall.EINVAL:
		return wire.SignalBad
	default:
		return wire.SignalDenied
	}
}

func (t *trees) list(usage bool) *wire.Listed {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &wire.Listed{Processes: make([]wire.ProcessState, 0, len(t.procs))}
	for _, p := range t.procs {
		m.Processes = append(m.Processes, p.state())
		if usage && !p.treeGone {
			if u, ok := t.table.usage(t.roots(p, func(int, life) {})); ok {
				u.Handle = p.handle
				m.Usages = append(m.Usages, u)
			}
		}
	}
	return m
}

// resize changes the size of a process's terminal, until nothing of its tree is left.
func (t *trees) resize(m *wire.Resize) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.procs[m.Handle]; p != nil && p.terminal != none {
		_ = setSize(p.terminal, m.Rows, m.Cols) // it cannot fail for a terminal
	}
}

// release forgets a process whose exit record is stored elsewhere.
func (t *trees) release(p *process) {
	p.mu.Lock()
	ended := p.exit != nil
	p.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if ended {
		delete(t.procs, p.handle)
	}
}
