package supervisor

import (
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// process is one run, from its fork until its exit record is sent, or, where records are retained, released.
type process struct {
	trees   *trees
	handle  uint64
	id      string
	pid     int
	retain  bool // keep output until it is acked, and the exit record until it is released
	started time.Time
	stdin   *input // nil without standard input
	out     [2]stream
	gone    chan struct{} // closed when its tree is empty

	// Guarded by the trees' mu.
	terminal  int // the process's end of its terminal; none without one, and when its tree is empty
	reaped    bool
	status    syscall.WaitStatus
	usage     syscall.Rusage
	ended     time.Time
	timeout   *time.Timer
	timedOut  bool
	killTimer *time.Timer      // sends SIGKILL
	killed    bool             // SIGKILL has been sent to the tree
	inGrace   bool             // between SIGTERM and SIGKILL: the rest of the tree may live on
	graceEnd  time.Time        // when that ends
	leftovers map[int]struct{} // pids that outlived the main process; the exit record has their count
	treeGone  bool             // gone is closed
	reported  bool             // the exit record has been written or retained
	oom       bool             // the memory limit ended it

	oomBefore int // the jail's count of OOM kills at the start

	mu   sync.Mutex
	conn *conn  // gets the exit record
	exit []byte // the exit record's frame; nil before the end
}

func (p *process) stream(kind byte) *stream { return &p.out[kind-wire.Stdout] }

// run follows one process to its end. It is the goroutine of its standard output, and waits for those of standard error and input.
func (p *process) run() {
	p.mu.Lock()
	p.conn.send(&wire.Spawned{Handle: p.handle, PID: uint32(p.pid), Started: p.started.UnixNano()})
	p.mu.Unlock()
	var others sync.WaitGroup
	if p.out[1].file != nil {
		others.Go(p.out[1].pump)
	}
	if p.stdin != nil {
		others.Go(p.stdin.run)
	}
	p.out[0].pump()
	<-p.gone
	if p.stdin != nil {
		p.stdin.abort()
	}
	others.Wait()
	p.trees.mu.Lock()
	record := p.exitRecord()
	p.trees.mu.Unlock()
	p.mu.Lock()
	p.exit = wire.Append(nil, record)
	p.conn.write(p.exit)
	p.mu.Unlock()
	p.trees.mu.Lock()
	p.reported = true
	if !p.retain {
		delete(p.trees.procs, p.handle)
	}
	p.trees.endIfEmpty()
	p.trees.mu.Unlock()
}

// exitRecord builds the exit record. The trees' mu is held.
func (p *process) exitRecord() *wire.Exit {
	m := &wire.Exit{
		Handle: p.handle, Stdout: p.out[0].offset(), Stderr: p.out[1].offset(),
		UserTime: p.usage.Utime.Nano(), SystemTime: p.usage.Stime.Nano(), MaxRSS: int64(p.usage.Maxrss) * rssUnit,
		Killed: uint32(len(p.leftovers)), Started: p.started.UnixNano(), Ended: p.ended.UnixNano(),
	}
	if p.status.Signaled() {
		m.Reason, m.Signal = wire.ReasonKilled, uint32(p.status.Signal())
	} else {
		m.Code = uint32(p.status.ExitStatus())
	}
	if p.oom {
		m.Reason = wire.ReasonOOM
	}
	if p.timedOut {
		m.Reason = wire.ReasonTimedOut
	}
	return m
}

// state is the process's entry in Listed. The trees' mu is held.
func (p *process) state() wire.ProcessState {
	st := wire.ProcessState{
		Handle: p.handle, ID: p.id, PID: uint32(p.pid), StdinClosed: true,
		Stdout: p.out[0].ackedOffset(), Stderr: p.out[1].ackedOffset(), Started: p.started.UnixNano(),
	}
	if p.stdin != nil {
		st.StdinTaken, st.StdinQueued, st.StdinClosed = p.stdin.state()
	}
	p.mu.Lock()
	st.Ended = p.exit != nil
	p.mu.Unlock()
	return st
}

// resume moves the process to another connection: it sends the retained output first, then the exit record.
func (p *process) resume(c *conn, stdout, stderr int64) {
	p.out[0].resume(c, stdout)
	p.out[1].resume(c, stderr)
	if p.stdin != nil {
		p.stdin.resume(c)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = c
	if p.exit != nil {
		c.write(p.exit)
	}
}
