package supervisor

import (
	"sync"
	"syscall"
	"time"
)

// hosts are the connections of the supervisor's host, of which one at a time is served.
type hosts struct {
	socket int             // the listening socket; none where only one connection is possible
	first  *conn           // a connection made before the start; nil for none
	next   chan *conn      // connections after the first; nil while none is accepted
	ended  <-chan struct{} // closed when there is nothing left to serve

	mu             sync.Mutex
	current        *conn
	reattachWindow time.Duration // how long to stay without a connection
}

// accept waits for a connection of this user or of root, at most the given time where that is not 0; nil when none came.
func (h *hosts) accept(wait time.Duration) *conn {
	if c := h.first; c != nil {
		h.first = nil
		return c
	}
	if h.next == nil {
		return acceptTrusted(h.socket)
	}
	late, stop := after(wait)
	defer stop()
	select {
	case c := <-h.next:
		return c
	case <-late:
		return nil
	case <-h.ended:
		return nil
	}
}

// enter makes a connection the current one. With a window, others may replace it from now on.
func (h *hosts) enter(c *conn, window time.Duration) {
	h.mu.Lock()
	h.current, h.reattachWindow = c, window
	h.mu.Unlock()
	if window > 0 && h.next == nil {
		h.next = make(chan *conn)
		go h.acceptMore()
	}
}

// acceptMore lets a new connection replace one whose host hangs with its connection open.
func (h *hosts) acceptMore() {
	for c := acceptTrusted(h.socket); c != nil; c = acceptTrusted(h.socket) {
		if h.window() == 0 {
			c.close()
			continue
		}
		h.stopReading()
		h.next <- c
	}
}

// window is how long to stay without a connection.
func (h *hosts) window() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reattachWindow
}

// stopReading makes the read of the current connection return.
func (h *hosts) stopReading() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.current.stopReading()
	}
}

// leave closes a connection that is no longer read.
func (h *hosts) leave(c *conn) {
	h.mu.Lock()
	if h.current == c {
		h.current = nil
	}
	h.mu.Unlock()
	c.close()
}

// unlink removes the name of the socket.
func (h *hosts) unlink() {
	if name, err := syscall.Getsockname(h.socket); err == nil {
		if unix, ok := name.(*syscall.SockaddrUnix); ok && len(unix.Name) > 0 && unix.Name[0] == '/' {
			_ = syscall.Unlink(unix.Name)
		}
	}
}

// acceptPause is the time between two tries to accept a connection for which there was no descriptor or memory.
const acceptPause = 10 * time.Millisecond

// acceptTrusted returns the next connection of this user or of root; nil when the socket accepts none. It waits while the machine has
// no descriptor or memory for one: without another host, the sandbox would end.
func acceptTrusted(listen int) *conn {
	for {
		fd, err := accept(listen)
		switch {
		case err == syscall.EINTR || err == syscall.ECONNABORTED:
		case scarce(err):
			time.Sleep(acceptPause)
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

// scarce reports whether a call failed because there is no descriptor or memory for now.
func scarce(err error) bool {
	return err == syscall.EMFILE || err == syscall.ENFILE || err == syscall.ENOBUFS || err == syscall.ENOMEM
}
