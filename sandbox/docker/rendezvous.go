package docker

import (
	"context"
	"errors"
	"io"
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
	kept     bool // the supervisor could not be given the socket, and has but the one connection
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

// open waits for the supervisor to ask, gives it the listening socket, and connects to that: the connection waits in the
// socket's queue until the supervisor takes it. A supervisor that cannot be given a socket says so, and keeps the connection
// on which it asked. From then on the supervisor alone holds the other end: when it ends, so does the connection.
func (r *rendezvous) open(ctx context.Context) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = r.asked.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	asking, err := r.asked.AcceptUnix()
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	stopAsking := context.AfterFunc(ctx, func() { _ = asking.SetDeadline(time.Unix(1, 0)) })
	defer stopAsking()
	kept, err := r.handOver(asking)
	if err == nil && kept {
		r.kept = true
		return asking, r.close()
	}
	err = errors.Join(err, asking.Close())
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", r.socket)
	if closeErr := r.close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	return conn, err
}

// handOver passes the listening socket, and says whether the supervisor stays on this connection instead.
func (r *rendezvous) handOver(asking *net.UnixConn) (kept bool, err error) {
	raw, err := r.listener.SyscallConn()
	if err != nil {
		return false, err
	}
	var writeErr error
	err = raw.Control(func(fd uintptr) {
		_, _, writeErr = asking.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(fd)), nil)
	})
	if err := errors.Join(err, writeErr); err != nil {
		return false, err
	}
	var b [1]byte
	_, err = asking.Read(b[:])
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
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
