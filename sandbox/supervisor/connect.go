package supervisor

import (
	"syscall"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// connect begins a connection to a server in the sandbox and passes its socket to the host, which waits for the rest. So the supervisor
// never waits for a server, and carries none of the bytes.
func (c *conn) connect(m *wire.Connect) {
	fd, err := begin(m)
	if err == nil {
		err = c.pass(&wire.Connected{Seq: m.Seq}, fd)
		_ = syscall.Close(fd)
	}
	switch err {
	case nil:
	case syscall.ECONNREFUSED, syscall.ENOENT:
		c.send(&wire.Connected{Seq: m.Seq, Result: wire.ConnectRefused, Detail: err.Error()})
	default:
		c.send(&wire.Connected{Seq: m.Seq, Result: wire.ConnectFailed, Detail: err.Error()})
	}
}

// begin makes a socket that does not block, and connects it.
func begin(m *wire.Connect) (int, error) {
	family, address := syscall.AF_INET, syscall.Sockaddr(&syscall.SockaddrInet4{Port: int(m.Port), Addr: [4]byte{127, 0, 0, 1}})
	switch m.Network {
	case wire.NetworkTCP6:
		family, address = syscall.AF_INET6, &syscall.SockaddrInet6{Port: int(m.Port), Addr: [16]byte{15: 1}}
	case wire.NetworkUnix:
		family, address = syscall.AF_UNIX, &syscall.SockaddrUnix{Name: m.Path}
	}
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return none, err
	}
	if err = syscall.SetNonblock(fd, true); err == nil {
		err = syscall.Connect(fd, address)
	}
	if err != nil && err != syscall.EINPROGRESS && err != syscall.EINTR {
		_ = syscall.Close(fd)
		return none, err
	}
	return fd, nil
}

// pass writes a message together with a descriptor. Without an error, the message is sent or the connection has ended.
func (c *conn) pass(m wire.Message, fd int) error {
	b := wire.Append(nil, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil
	}
	n, err := retry(func() (int, error) { return syscall.SendmsgN(c.fd, b, syscall.UnixRights(fd), nil, 0) })
	if err != nil {
		return err
	}
	c.put(b[n:])
	return nil
}
