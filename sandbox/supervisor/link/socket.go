package link

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/sluice-dev/sluice/schemas"
)

// pairBuffer is the send buffer of a Pair, in bytes: several output frames. With the usual 208 KiB the two ends take
// turns, and output is half as fast.
const pairBuffer = 2 << 20

// Pair makes a connection: the host's end, and the one for a supervisor to inherit. Errors: unavailable.
func Pair() (net.Conn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, schemas.Errorf(schemas.CodeUnavailable, "socket: %w", os.NewSyscallError("socketpair", err))
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	growSocket(fds[1], pairBuffer)
	ours, theirs := os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "supervisor")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, nil, schemas.Errorf(schemas.CodeUnavailable, "socket: %w", errors.Join(err, theirs.Close()))
	}
	return conn, theirs, nil
}

// growSocket enlarges a socket's send buffer, on Linux beyond the system's limit (net.core.wmem_max) if this process may. A smaller
// buffer is only slower.
func growSocket(fd, size int) {
	const sndbufForce = 32 // SO_SNDBUFFORCE
	if runtime.GOOS != "linux" || syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, sndbufForce, size) != nil {
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, size)
	}
}

// Listen makes the socket for a supervisor to inherit, with mode 0600. It replaces a socket without a listener.
// Errors: conflict when the socket has a listener, unavailable.
func Listen(ctx context.Context, socket string) (*os.File, error) {
	address := &net.UnixAddr{Name: socket, Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		conn, dialErr := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if dialErr == nil {
			return nil, errors.Join(schemas.Errorf(schemas.CodeConflict, "the sandbox already exists, with another worker"), conn.Close())
		}
		if err = os.Remove(socket); err == nil {
			l, err = net.ListenUnix("unix", address)
		}
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	err = errors.Join(err, l.Close())
	if err == nil {
		err = os.Chmod(socket, 0o600)
	}
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, schemas.Errorf(schemas.CodeUnavailable, "socket: %w", errors.Join(err, os.Remove(socket)))
	}
	return f, nil
}
