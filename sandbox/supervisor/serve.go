package supervisor

import (
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// maxKeptBuffer is the largest frame buffer that is reused: most commands are small, and large ones are rare.
const maxKeptBuffer = 128 << 10

// serve reads a connection's frames until it ends or violates the protocol.
func (s *supervisor) serve(c *conn) {
	r := wire.NewReader(c)
	var buf []byte
	greeted := false
	for {
		t, n, err := r.Next()
		if err != nil {
			return
		}
		if cap(buf) < n || cap(buf) > maxKeptBuffer {
			buf = make([]byte, max(n, 4<<10))
		}
		if r.Payload(buf[:n]) != nil {
			return
		}
		if greeted != (t != wire.TypeHello) {
			return
		}
		greeted = true
		m, err := wire.Parse(t, buf[:n])
		if err != nil || s.handle(c, m) != nil {
			return
		}
	}
}

// handle executes one message. An error is a protocol violation of the host and ends the connection. A message for an unknown
// process does nothing.
func (s *supervisor) handle(c *conn, m wire.Message) error {
	switch m := m.(type) {
	case *wire.Hello:
		s.hosts.enter(c, time.Duration(m.ReattachWindow))
		c.send(&wire.Hello{Version: wire.Version, PID: uint32(syscall.Getpid()), ReattachWindow: m.ReattachWindow})
		if m.Version < wire.MinVersion {
			return wire.ErrVersion
		}
	case *wire.Spawn:
		s.spawn(c, m)
	case *wire.Ack:
		if p := s.trees.find(m.Handle); p != nil {
			p.stream(m.Stream).ack(m.Offset)
		}
	case *wire.Stdin:
		if p := s.trees.find(m.Handle); p != nil && p.stdin != nil && !p.stdin.put(m.Data) {
			return wire.ErrOrder
		}
	case *wire.StdinEOF:
		if p := s.trees.find(m.Handle); p != nil && p.stdin != nil {
			p.stdin.finish()
		}
	case *wire.Release:
		if p := s.trees.find(m.Handle); p != nil {
			s.trees.release(p)
		}
	case *wire.Signal:
		c.send(&wire.Signaled{Handle: m.Handle, Seq: m.Seq, Result: s.trees.signal(m)})
	case *wire.Kill:
		if p := s.trees.find(m.Handle); p != nil {
			s.trees.mu.Lock()
			s.trees.kill(p, time.Duration(m.Grace))
			s.trees.mu.Unlock()
		}
	case *wire.List:
		c.send(s.trees.list(m.Usage))
	case *wire.Resume:
		if p := s.trees.find(m.Handle); p != nil {
			p.resume(c, m.Stdout, m.Stderr)
		}
	case *wire.Resize:
		s.trees.resize(m)
	case *wire.Connect:
		c.connect(m)
	case *wire.Terminate:
		s.trees.terminate(time.Duration(m.Grace))
	default:
		return wire.ErrOrder
	}
	return nil
}
