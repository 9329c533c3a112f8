package docker

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// rendezvous is the pair of sockets by which a container's supervisor gets its listening socket.
type rendezvous struct {
	ask      string // what the container sees, until its supervisor has asked
	socket   string // what the supervisor will listen on
	asked    *net.UnixListener
	listener *net.UnixListener
}

// meet makes both sockets under names that nothing else uses. Anybody may connect to the one the container sees: it is in a
// folder that only the worker can enter, and in the container of the one it is for.
func meet(dir, name string) (*rendezvous, error) {
	r := &rendezvous{ask: filepath.Join(dir, name+".ask"), socket: filepath.Join(dir, name+".sock")}
	var err error
	if r.asked, err = net.ListenUnix("unix", &net.UnixAddr{Name: r.ask, Net: "unix"}); err == nil {
		if err = os.Chmod(r.ask, 0o666); err == nil {
			r.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: r.socket, Net: "unix"})
		}
	}
	if err == nil {
		r.listener.SetUnlinkOnClose(false)
		err = os.Chmod(r.socket, 0o600)
	}
	if err != nil {
		err = schemas.Errorf(schemas.CodeUnavailable, "socket: %w", err)
		return nil, errors.Join(err, r.close(), remove(r.socket))
	}
	return r, nil
}

// handOver waits for the supervisor to ask, and gives it the listening socket. Whoever connects to that from then on waits in its
// queue until the supervisor takes the connection.
func (r *rendezvous) handOver(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = r.asked.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := r.asked.AcceptUnix()
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	raw, err := r.listener.SyscallConn()
	if err == nil {
		var writeErr error
		err = raw.Control(func(fd uintptr) {
			_, _, writeErr = conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(fd)), nil)
		})
		err = errors.Join(err, writeErr)
	}
	return errors.Join(err, conn.Close())
}

// close ends this side of both sockets, once; the one the supervisor has been given stays where it is.
func (r *rendezvous) close() (err error) {
	if r.asked != nil {
		err = r.asked.Close()
	}
	if r.listener != nil {
		err = errors.Join(err, r.listener.Close())
	}
	r.asked, r.listener = nil, nil
	return err
}

// remove takes a file away that may be gone already.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
