package supervisor

import (
	"os"
	"sync"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// input is a process's standard input. The host's bytes wait in queue until the process reads.
type input struct {
	p    *process
	file *os.File

	mu     sync.Mutex
	more   sync.Cond
	conn   *conn
	queue  [][]byte
	size   int // bytes in queue, and being written
	taken  int64
	eof    bool // nothing follows queue
	closed bool // the process takes no more
}

func newInput(p *process, f *os.File) *input {
	in := &input{p: p, file: f, conn: p.conn}
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
	if !in.eof && !in.closed && len(b) > 0 {
		in.queue = append(in.queue, append([]byte(nil), b...))
		in.size += len(b)
		in.more.Signal()
	}
	return true
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
	in.conn.send(&wire.StdinTaken{Handle: in.p.handle, Taken: in.taken, Closed: in.closed})
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
	in.report()
}
