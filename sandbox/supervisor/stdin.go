package supervisor

import (
	"os"
	"sync"
	"syscall"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// input is a process's standard input. The host's bytes wait in queue until the process reads.
type input struct {
	p    *process
	file *os.File
	fd   int // of file, which does not block
	// terminal says that file is a terminal.
	terminal bool

	mu     sync.Mutex
	more   sync.Cond
	conn   *conn
	queue  [][]byte
	last   byte // of what was put; 0 at first
	size   int  // bytes in queue, and being written
	taken  int64
	eof    bool // nothing follows queue
	closed bool // the process takes no more
}

func newInput(p *process, f *os.File, fd int) *input {
	in := &input{p: p, file: f, fd: fd, terminal: p.terminal != none, conn: p.conn}
	in.more.L = &in.mu
	return in
}

// put queues bytes from the host; false when the host exceeds its window.
func (in *input) put(b []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.size+len(b) > wire.StdinWindow {
		return false
	}
	if in.eof || in.closed {
		return true
	}
	if len(b) > 0 {
		in.last = b[len(b)-1]
	}
	if in.terminal && in.size == 0 {
		b = b[in.writeNow(b):]
	}
	if len(b) > 0 {
		in.queue = append(in.queue, append([]byte(nil), b...))
		in.size += len(b)
		in.more.Signal()
	}
	return true
}

// writeNow writes what the terminal takes at once, and returns how much that was: a key waits for no other goroutine. mu is held.
func (in *input) writeNow(b []byte) int {
	n, err := syscall.Write(in.fd, b)
	if err != nil {
		return 0 // run finds out why
	}
	in.taken += int64(n)
	in.report()
	return n
}

// finish closes the pipe after the queue.
func (in *input) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.eof = true
	in.more.Signal()
}

// abort ends run at once.
func (in *input) abort() {
	in.mu.Lock()
	in.eof, in.closed = true, true
	in.queue = nil
	in.more.Signal()
	in.mu.Unlock()
	_ = in.file.Close()
}

// run writes to the pipe until its end.
func (in *input) run() {
	for {
		b := in.pop()
		if b == nil {
			if in.terminal {
				in.end()
			}
			break
		}
		n, err := in.file.Write(b)
		in.wrote(n, len(b), err != nil)
		if err != nil {
			break
		}
	}
	_ = in.file.Close()
}

// pop waits for the next piece to write; nil at the end.
func (in *input) pop() []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.queue) == 0 && !in.eof {
		in.more.Wait()
	}
	if len(in.queue) == 0 {
		in.closed = true
		return nil
	}
	b := in.queue[0]
	in.queue = in.queue[1:]
	return b
}

// wrote counts n written bytes of a piece and reports them.
func (in *input) wrote(n, size int, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken += int64(n)
	in.size -= size
	if closed {
		in.closed, in.queue = true, nil
	}
	in.report()
}

// report sends the count to the host. mu is held, so that counts arrive in order.
func (in *input) report() {
	if in.terminal {
		in.conn.postpone(in.count())
	} else {
		in.conn.send(in.count())
	}
}

func (in *input) count() *wire.StdinTaken {
	return &wire.StdinTaken{Handle: in.p.handle, Taken: in.taken, Closed: in.closed}
}

func (in *input) state() (taken, queued int64, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken, int64(in.size), in.closed || in.eof
}

// resume reports to another connection from now on.
func (in *input) resume(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conn = c
	c.send(in.count())
}
