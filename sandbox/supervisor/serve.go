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
		s.hello(c, m)
		if m.Version < wire.MinVersion {
			return wire.ErrVersion
		}
	case *wire.Spawn:
		s.spawn(c, m)
	case *wire.Ack:
		if p := s.find(m.Handle); p != nil {
			p.stream(m.Stream).ack(m.Offset)
		}
	case *wire.Stdin:
		if p := s.find(m.Handle); p != nil && p.stdin != nil && !p.stdin.put(m.Data) {
			return wire.ErrOrder
		}
	case *wire.StdinEOF:
		if p := s.find(m.Handle); p != nil && p.stdin != nil {
			p.stdin.finish()
		}
	case *wire.Release:
		if p := s.find(m.Handle); p != nil {
			s.release(p)
		}
	case *wire.Signal:
		c.send(&wire.Signaled{Handle: m.Handle, Seq: m.Seq, Result: s.signal(m)})
	case *wire.Kill:
		if p := s.find(m.Handle); p != nil {
			s.mu.Lock()
			s.kill(p, time.Duration(m.Grace))
			s.mu.Unlock()
		}
	case *wire.List:
		c.send(s.list(m.Usage))
	case *wire.Resume:
		if p := s.find(m.Handle); p != nil {
			p.resume(c, m.Stdout, m.Stderr)
		}
	case *wire.Terminate:
		s.terminate(time.Duration(m.Grace))
	default:
		return wire.ErrOrder
	}
	return nil
}

func (s *supervisor) hello(c *conn, m *wire.Hello) {
	s.mu.Lock()
	s.conn = c
	s.reattachWindow = time.Duration(m.ReattachWindow)
	s.mu.Unlock()
	if m.ReattachWindow > 0 && s.next == nil {
		s.next = make(chan *conn)
		go s.acceptMore()
	}
	c.send(&wire.Hello{Version: wire.Version, PID: uint32(syscall.Getpid()), ReattachWindow: m.ReattachWindow})
}

func (s *supervisor) find(handle uint64) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[handle]
}

// signal signals the group of a process that has not been reaped: until then the kernel does not reuse its pid.
func (s *supervisor) signal(m *wire.Signal) wire.SignalResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[m.Handle]
	if p == nil || p.reaped {
		return wire.SignalGone
	}
	if m.Signal == 0 || m.Signal > 64 {
		return wire.SignalBad
	}
	switch syscall.Kill(-p.pid, syscall.Signal(m.Signal)) {
	case nil:
		return wire.SignalSent
	case syscall.ESRCH:
		return wire.SignalGone
	case syscall.EINVAL:
		return wire.SignalBad
	default:
		return wire.SignalDenied
	}
}

func (s *supervisor) list(usage bool) *wire.Listed {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &wire.Listed{Processes: make([]wire.ProcessState, 0, len(s.procs))}
	for _, p := range s.procs {
		m.Processes = append(m.Processes, p.state())
		if usage && !p.treeGone {
			if u, ok := s.table.usage(s.roots(p)); ok {
				u.Handle = p.handle
				m.Usages = append(m.Usages, u)
			}
		}
	}
	return m
}
