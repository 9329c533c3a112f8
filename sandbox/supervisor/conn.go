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
	dead bool
}

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

// write writes whole frames. The host always reads, so a write never waits for long.
func (c *conn) write(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// accept waits for a connection of this user or of root, at most the given time where that is not 0; nil when none came.
func (s *supervisor) accept(wait time.Duration) *conn {
	if c := s.first; c != nil {
		s.first = nil
		return c
	}
	if s.next == nil {
		return acceptTrusted(s.listen)
	}
	late, stop := after(wait)
	defer stop()
	select {
	case c := <-s.next:
		return c
	case <-late:
		return nil
	case <-s.ended:
		return nil
	}
}

// acceptMore lets a new connection replace one whose host hangs with its connection open.
func (s *supervisor) acceptMore() {
	for c := acceptTrusted(s.listen); c != nil; c = acceptTrusted(s.listen) {
		s.mu.Lock()
		reattachable := s.reattachWindow > 0
		if reattachable && s.conn != nil {
			s.conn.stopReading()
		}
		s.mu.Unlock()
		if !reattachable {
			c.close()
			continue
		}
		s.next <- c
	}
}

// acceptTrusted returns the next connection of this user or of root; nil when the socket accepts none.
func acceptTrusted(listen int) *conn {
	for {
		fd, err := accept(listen)
		switch {
		case err == syscall.EINTR || err == syscall.ECONNABORTED:
		case err != nil:
			return nil
		case !trusted(fd):
			_ = syscall.Close(fd)
		default:
			growSocket(fd)
			return &conn{fd: fd}
		}
	}
}

// disconnect closes a connection that is no longer read.
func (s *supervisor) disconnect(c *conn) {
	s.mu.Lock()
	if s.conn == c {
		s.conn = nil
	}
	s.mu.Unlock()
	c.close()
}
