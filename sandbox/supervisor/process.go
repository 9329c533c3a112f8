package supervisor

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// process is one run, from its fork until its exit record is sent, or, where records are kept, released.
type process struct {
	s       *supervisor
	handle  uint64
	id      string
	pid     int
	keep    bool // output and exit record are kept until they are acked
	started time.Time
	stdin   *input // nil without standard input
	out     [2]stream
	gone    chan struct{} // closed when nothing of its tree is left

	// Guarded by the supervisor's mu.
	reaped   bool
	status   syscall.WaitStatus
	usage    syscall.Rusage
	ended    time.Time
	timeout  *time.Timer
	timedOut bool
	killing  *time.Timer      // SIGKILL comes when it fires
	killed   bool             // SIGKILL has been sent to the tree
	mercy    bool             // between SIGTERM and SIGKILL: what is left may live on
	until    time.Time        // when that ends
	seen     map[int]struct{} // left behind, counted in the exit record
	over     bool             // gone is closed
	sent     bool             // the exit record has been written or kept
	oom      bool             // the memory limit ended it

	oomBefore int // the jail's count of such ends when it started

	mu   sync.Mutex
	conn *conn  // gets the exit record
	exit []byte // the exit record's frame, once there
}

func (p *process) stream(kind byte) *stream { return &p.out[kind-wire.Stdout] }

// run sees one process through. It is the goroutine of its standard output, and waits for the two others.
func (p *process) run() {
	m := wire.Spawned{Handle: p.handle, PID: uint32(p.pid), Started: p.started.UnixNano()}
	p.mu.Lock()
	p.conn.write(m.Append(nil))
	p.mu.Unlock()
	var others sync.WaitGroup
	others.Go(p.out[1].pump)
	if p.stdin != nil {
		others.Go(p.stdin.run)
	}
	p.out[0].pump()
	<-p.gone
	if p.stdin != nil {
		p.stdin.abort()
	}
	others.Wait()
	p.s.mu.Lock()
	record := p.record()
	p.s.mu.Unlock()
	p.mu.Lock()
	p.exit = record.Append(nil)
	p.conn.write(p.exit)
	p.mu.Unlock()
	p.s.mu.Lock()
	p.sent = true
	if !p.keep {
		delete(p.s.procs, p.handle)
	}
	p.s.settle()
	p.s.mu.Unlock()
}

// record is the exit record. The supervisor's mu is held.
func (p *process) record() *wire.Exit {
	m := &wire.Exit{
		Handle: p.handle, Stdout: p.out[0].total(), Stderr: p.out[1].total(),
		UserTime: p.usage.Utime.Nano(), SystemTime: p.usage.Stime.Nano(), MaxRSS: int64(p.usage.Maxrss) * rssUnit,
		Killed: uint32(len(p.seen)), Started: p.started.UnixNano(), Ended: p.ended.UnixNano(),
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

// held is what List tells. The supervisor's mu is held.
func (p *process) held() wire.Held {
	h := wire.Held{
		Handle: p.handle, ID: p.id, PID: uint32(p.pid), StdinClosed: true,
		Stdout: p.out[0].safe(), Stderr: p.out[1].safe(), Started: p.started.UnixNano(),
	}
	if p.stdin != nil {
		h.StdinTaken, h.StdinQueued, h.StdinClosed = p.stdin.state()
	}
	p.mu.Lock()
	h.Ended = p.exit != nil
	p.mu.Unlock()
	return h
}

// resume gives the process to another connection: what is held of its output first, then its exit record.
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

// release forgets a process whose exit record is kept safe elsewhere.
func (s *supervisor) release(p *process) {
	p.mu.Lock()
	ended := p.exit != nil
	p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if ended {
		delete(s.procs, p.handle)
	}
}

// pipes are one process's ends, and the child's.
type pipes struct {
	files [3]uintptr  // the child's 0, 1, 2
	child []int       // to be closed here after the fork
	ours  [3]*os.File // nil where there is none
	fds   [3]int      // of ours
}

func (s *supervisor) makePipes(stdin bool) (*pipes, error) {
	p := &pipes{}
	p.files[0] = uintptr(s.null)
	for i := range p.ours {
		if i == 0 && !stdin {
			continue
		}
		r, w, err := pipe()
		if err != nil {
			p.close()
			return nil, err
		}
		theirs, mine := w, r
		if i == 0 {
			theirs, mine = r, w
		}
		p.child = append(p.child, theirs)
		p.files[i] = uintptr(theirs)
		// Only our end: the child must find a pipe that blocks.
		if err := syscall.SetNonblock(mine, true); err != nil {
			syscall.Close(mine)
			p.close()
			return nil, err
		}
		p.fds[i] = mine
		p.ours[i] = os.NewFile(uintptr(mine), "pipe")
	}
	return p, nil
}

func (p *pipes) closeChild() {
	for _, fd := range p.child {
		syscall.Close(fd)
	}
	p.child = nil
}

func (p *pipes) close() {
	p.closeChild()
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}
