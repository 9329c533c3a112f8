package supervisor

import (
	"os"
	"sync"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// input is a process's standard input. What the host sent waits in queue until the process reads.
type input struct {
	p    *process
	file *os.File

	mu     sync.Mutex
	more   sync.Cond
	conn   *conn
	queue  [][]byte
	size   int // bytes in queue, and being written
	taken  int64
	eof    bool // nothing comes after queue
	closed bool // nothing will be taken any more
}

func newInput(p *process, f *os.File) *input {
	in := &input{p: p, file: f, conn: p.conn}
	in.more.L = &in.mu
	return in
}

// put takes bytes from the host; false when the host sends more than its window allows.
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

// finish closes the pipe after what is queued.
func (in *input) finish() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.eof = true
	in.more.Signal()
}

// abort ends run, whatever it waits for.
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
		b := in.next()
		if b == nil {
			break
		}
		n, err := in.file.Write(b)
		in.report(n, len(b), err != nil)
		if err != nil {
			break
		}
	}
	_ = in.file.Close()
}

// next is the next piece to write; nil at the end.
func (in *input) next() []byte {
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

// report tells the host how much was written. The frame is sent with mu held, so that counts arrive in their order.
func (in *input) report(n, size int, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken += int64(n)
	in.size -= size
	if closed {
		in.closed, in.queue = true, nil
	}
	m := wire.StdinTaken{Handle: in.p.handle, Taken: in.taken, Closed: in.closed}
	in.conn.write(m.Append(nil))
}

// state is how much was written, how much waits, and whether there will be no more.
func (in *input) state() (taken, queued int64, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken, int64(in.size), in.closed || in.eof
}

// resume tells another connection how much was written, and later counts too.
func (in *input) resume(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conn = c
	m := wire.StdinTaken{Handle: in.p.handle, Taken: in.taken, Closed: in.closed}
	c.write(m.Append(nil))
}
