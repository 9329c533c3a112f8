package supervisor

import (
	"io"
	"sync"
	"syscall"
)

// conn is one connection to a host. Its descriptor blocks: the main thread sits in read(2) itself, which the kernel wakes
// with no scheduler between, and that shows in the time a short command takes.
type conn struct {
	fd int
	mu sync.Mutex // one frame at a time
	// dead is set by the first write that fails: what comes after would be a frame with a hole before it.
	dead bool
}

// Read is read(2).
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(c.fd, p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// write sends whole frames, and says whether they went out. The host always reads, so that a write never waits for long.
func (c *conn) write(b []byte) bool {
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
	return !c.dead
}

// hangUp makes the main thread's read return.
func (c *conn) hangUp() { _ = syscall.Shutdown(c.fd, syscall.SHUT_RD) }

// close ends the connection once no write is in progress. Output frames may still come: they fail.
func (c *conn) close() {
	_ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	_ = syscall.Close(c.fd)
}
