package link

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/sluice-dev/sluice/schemas"
)

// Listen makes the socket that a supervisor is to inherit, in place of one that nobody listens on any more, with mode 0600.
// Errors: conflict when somebody does listen on it, unavailable.
func Listen(ctx context.Context, socket string) (*os.File, error) {
	address := &net.UnixAddr{Name: socket, Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		conn, dialErr := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if dialErr == nil {
			return nil, errors.Join(schemas.Errorf(schemas.CodeConflict, "the sandbox is there already, with another worker"), conn.Close())
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
