package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// connected is the answer to a Connect.
type connected struct {
	*wire.Connected
	socket *os.File // nil without a connection
	err    error    // why the socket of a connection could not be taken
}

// Connect connects to a server in the sandbox: to a TCP port on its loopback interface, or to a unix socket where port is 0. The
// connection does not pass through the supervisor. Errors: not_found when nothing listens there, deadline_exceeded, unavailable.
func (l *Link) Connect(ctx context.Context, port uint16, path string) (net.Conn, error) {
	if l.version < wire.ConnectVersion {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the sandbox was made by an earlier version, which makes no connections: stop the session and begin another")
	}
	if port == 0 {
		return l.connect(ctx, &wire.Connect{Network: wire.NetworkUnix, Path: path})
	}
	conn, err := l.connect(ctx, &wire.Connect{Network: wire.NetworkTCP4, Port: uint32(port)})
	if errors.Is(err, schemas.ErrNotFound) { // what listens on localhost may listen on ::1 alone
		if v6, err := l.connect(ctx, &wire.Connect{Network: wire.NetworkTCP6, Port: uint32(port)}); err == nil {
			return v6, nil
		}
	}
	return conn, err
}

func (l *Link) connect(ctx context.Context, m *wire.Connect) (net.Conn, error) {
	answer := make(chan connected, 1)
	if err := l.await(m, answer); err != nil {
		return nil, err
	}
	where := fmt.Sprintf("port %d", m.Port)
	if m.Port == 0 {
		where = m.Path
	}
	if err := l.send(m); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		switch {
		case a.err != nil:
			return nil, shortage.Explain(connectError(where, a.err))
		case a.socket != nil:
			conn, err := finishConnect(ctx, a.socket)
			return conn, shortage.Explain(connectError(where, err))
		case a.Result == wire.ConnectRefused:
			return nil, connectError(where, syscall.ECONNREFUSED)
		default:
			return nil, schemas.Errorf(schemas.CodeUnavailable, "connect to %s in the sandbox: %.200s", where, a.Detail)
		}
	case <-l.done:
		return nil, supervisorGone(l.err)
	case <-ctx.Done():
		go func() { // the answer comes, or the link ends
			select {
			case a := <-answer:
				a.close()
			case <-l.done:
			}
		}()
		return nil, connectError(where, ctx.Err())
	}
}

func connectError(where string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return schemas.Errorf(schemas.CodeNotFound, "nothing listens on %s in the sandbox", where)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "connect to %s in the sandbox: no answer in time", where)
	default:
		return schemas.Errorf(schemas.CodeUnavailable, "connect to %s in the sandbox: %w", where, err)
	}
}

// await registers the answer to a Connect and gives it its number.
func (l *Link) await(m *wire.Connect, answer chan<- connected) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone (%v): %w", l.err, sandbox.ErrEnded)
	}
	l.lastConnect++
	m.Seq = l.lastConnect
	l.connects[m.Seq] = answer
	return nil
}

// connected delivers an answer, with the oldest socket that came. A socket without an answer is a fault of the supervisor.
func (l *Link) connected(m *wire.Connected) error {
	a := connected{Connected: m}
	if m.Result == wire.ConnectBegun {
		if a.socket, a.err = l.sockets.take(); errors.Is(a.err, wire.ErrOrder) {
			return a.err
		}
	}
	l.mu.Lock()
	answer := l.connects[m.Seq]
	delete(l.connects, m.Seq)
	l.mu.Unlock()
	if answer == nil {
		a.close()
		return wire.ErrOrder
	}
	answer <- a
	return nil
}

func (a *connected) close() {
	if a.socket != nil {
		_ = a.socket.Close()
	}
}

// finishConnect waits until a socket is connected. It closes the file. The sandbox made the socket, so it is checked.
func finishConnect(ctx context.Context, socket *os.File) (net.Conn, error) {
	conn, err := net.FileConn(socket)
	if err = errors.Join(err, socket.Close()); err != nil {
		return nil, err
	}
	var raw syscall.RawConn
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		err = wire.ErrOrder
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // it ends the wait
	var failed error
	err = raw.Write(func(fd uintptr) (done bool) {
		done, failed = isConnected(int(fd))
		return done
	})
	if !stop() {
		return nil, ctx.Err()
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// isConnected reports whether a socket has connected, or has failed to.
func isConnected(fd int) (done bool, err error) {
	if kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil || kind != syscall.SOCK_STREAM {
		return true, errors.Join(err, wire.ErrOrder)
	}
	if code, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ERROR); err != nil || code != 0 {
		return true, errors.Join(err, syscall.Errno(code))
	}
	_, err = syscall.Getpeername(fd)
	if err == syscall.ENOTCONN {
		return false, nil
	}
	return true, err
}

// maxSockets is how many sockets may come before their answers: those of one read.
const maxSockets = 64

// sockets reads a connection and keeps the descriptors that come with the bytes.
type sockets struct {
	conn *net.UnixConn
	oob  []byte
	came []int // lost for one that came while this process could open no more files
}

// lost stands for a socket that the system has closed. A read returns the descriptors of one message at most, and a message has one.
const lost = -1

// Read reads bytes, and keeps what comes with them.
func (s *sockets) Read(p []byte) (int, error) {
	n, oob, flags, _, err := s.conn.ReadMsgUnix(p, s.oob)
	if oob > 0 {
		messages, parseErr := syscall.ParseSocketControlMessage(s.oob[:oob])
		for i := range messages {
			fds, rightsErr := syscall.ParseUnixRights(&messages[i])
			s.came, parseErr = append(s.came, fds...), errors.Join(parseErr, rightsErr)
		}
		err = errors.Join(err, parseErr)
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		s.came = append(s.came, lost)
	}
	if len(s.came) > maxSockets {
		err = errors.Join(err, wire.ErrOrder)
	}
	return max(n, 0), err // -1 with an error of the system
}

// take returns the oldest socket. Errors: EMFILE for one that is lost; wire.ErrOrder where none came.
func (s *sockets) take() (*os.File, error) {
	if s == nil || len(s.came) == 0 {
		return nil, wire.ErrOrder
	}
	fd := s.came[0]
	s.came = s.came[1:]
	if fd == lost {
		return nil, syscall.EMFILE
	}
	return os.NewFile(uintptr(fd), "sandbox connection"), nil
}

// close closes what was not taken.
func (s *sockets) close() {
	for f, err := s.take(); !errors.Is(err, wire.ErrOrder); f, err = s.take() {
		_ = f.Close() // a lost one is nil, which is an error of no consequence
	}
}
