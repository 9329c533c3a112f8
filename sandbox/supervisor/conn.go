package supervisor

import (
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// conn is one connection to a host. Its descriptor blocks: the main thread waits in read(2) itself, which the kernel wakes
// without a scheduler between. That is measurable in the time of a short command.
type conn struct {
	fd int
	mu sync.Mutex // one frame at a time
	// dead is set by the first write that fails. A later frame would follow an incomplete one.
	dead  bool
	later []byte      // postponed frames
	flush *time.Timer // writes them
}

// flushAfter is how long a postponed frame waits.
const flushAfter = 2 * time.Millisecond

// Read is read(2).
func (c *conn) Read(p []byte) (int, error) {
	n, err := read(c.fd, p)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func read(fd int, p []byte) (int, error) {
	return retry(func() (int, error) { return syscall.Read(fd, p) })
}

// retry repeats a call that a signal interrupts.
func retry[T any](call func() (T, error)) (T, error) {
	for {
		if v, err := call(); err != syscall.EINTR {
			return v, err
		}
	}
}

// send writes a message. Where the connection has ended, the message is dropped.
func (c *conn) send(m wire.Message) { c.write(wire.Append(nil, m)) }

// postpone sends a message after flushAfter, or before the next one. Output overtakes it: the host's work for the answer to a key would
// delay the echo, for which the user waits.
func (c *conn) postpone(m wire.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.later) == 0 {
		if c.flush == nil {
			c.flush = time.AfterFunc(flushAfter, func() { c.write(nil) })
		} else {
			c.flush.Reset(flushAfter)
		}
	}
	c.later = append(c.later, wire.Append(nil, m)...)
}

// write writes whole frames, after what was postponed. The host always reads, so a write never waits for long.
func (c *conn) write(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.later) > 0 {
		c.flush.Stop()
		c.put(c.later)
		c.later = c.later[:0]
	}
	c.put(b)
}

// writeOutput writes a frame of output.
func (c *conn) writeOutput(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(b)
}

// put writes whole frames. mu is held.
func (c *conn) put(b []byte) {
	for len(b) > 0 && !c.dead {
		n, err := syscall.Write(c.fd, b)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			c.dead = true
		default:
			b = b[n:]
		}
	}
}

// stopReading makes the main thread's read return.
func (c *conn) stopReading() { _ = syscall.Shutdown(c.fd, syscall.SHUT_RD) }

// close ends the connection once no write is in progress. Later writes of output frames fail.
func (c *conn) close() {
	_ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	_ = syscall.Close(c.fd)
}
