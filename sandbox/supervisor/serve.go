package supervisor

import (
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// keepBuffer is the largest frame buffer kept between frames: commands are small, and a large one comes rarely.
const keepBuffer = 128 << 10

// serve reads a connection's frames until it ends, or says what it may not.
func (s *supervisor) serve(c *conn) {
	r := wire.NewReader(c)
	var buf []byte
	greeted := false
	for {
		t, n, err := r.Next()
		if err != nil {
			return
		}
		if cap(buf) < n || cap(buf) > keepBuffer {
			buf = make([]byte, max(n, 4<<10))
		}
		if r.Payload(buf[:n]) != nil {
			return
		}
		if greeted != (t != wire.TypeHello) {
			return
		}
		greeted = true
		if s.frame(c, t, buf[:n]) != nil {
			return
		}
	}
}

// frame does what one frame says. An error is a fault of the host that ends the connection.
func (s *supervisor) frame(c *conn, t wire.Type, b []byte) error {
	switch t {
	case wire.TypeHello:
		var m wire.Hello
		if err := m.Decode(b); err != nil {
			return err
		}
		s.hello(c, &m)
		if m.Version != wire.Version {
			return wire.ErrVersion
		}
	case wire.TypeSpawn:
		var m wire.Spawn
		if err := m.Decode(b); err != nil {
			return err
		}
		s.spawn(c, &m)
	case wire.TypeAck:
		var m wire.Ack
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := s.find(m.Handle); p != nil {
			p.stream(m.Stream).ack(m.Offset)
		}
	case wire.TypeStdin:
		var m wire.Stdin
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := s.find(m.Handle); p != nil && p.stdin != nil && !p.stdin.put(m.Data) {
			return wire.ErrOrder
		}
	case wire.TypeStdinEOF, wire.TypeRelease:
		var m wire.Handle
		if err := m.Decode(b); err != nil {
			return err
		}
		p := s.find(uint64(m))
		switch {
		case p == nil:
		case t == wire.TypeRelease:
			s.release(p)
		case p.stdin != nil:
			p.stdin.finish()
		}
	case wire.TypeTerminate:
		var m wire.Terminate
		if err := m.Decode(b); err != nil {
			return err
		}
		s.terminate(time.Duration(m.Grace))
	default:
		return s.control(c, t, b)
	}
	return nil
}

// control does the frames about signals and about taking over.
func (s *supervisor) control(c *conn, t wire.Type, b []byte) error {
	switch t {
	case wire.TypeSignal:
		var m wire.Signal
		if err := m.Decode(b); err != nil {
			return err
		}
		reply := wire.Signaled{Handle: m.Handle, Seq: m.Seq, Result: s.signal(&m)}
		c.write(reply.Append(nil))
	case wire.TypeKill:
		var m wire.Kill
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := s.find(m.Handle); p != nil {
			s.mu.Lock()
			s.kill(p, time.Duration(m.Grace))
			s.mu.Unlock()
		}
	case wire.TypeList:
		if len(b) != 0 {
			return wire.ErrPayload
		}
		reply := s.list()
		c.write(reply.Append(nil))
	case wire.TypeResume:
		var m wire.Resume
		if err := m.Decode(b); err != nil {
			return err
		}
		if p := s.find(m.Handle); p != nil {
			p.resume(c, m.Stdout, m.Stderr)
		}
	default:
		return wire.ErrOrder
	}
	return nil
}

func (s *supervisor) find(handle uint64) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.procs[handle]
}

// signal sends to the group of a process that has not been reaped, so that the number is still its own.
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

// list tells every process there is, running or kept.
func (s *supervisor) list() *wire.Listed {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &wire.Listed{Processes: make([]wire.Held, 0, len(s.procs))}
	for _, p := range s.procs {
		m.Processes = append(m.Processes, p.held())
	}
	return m
}
