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

// socketHandoff passes the listening socket to a container's supervisor. The container sees only the request socket, on which its
// supervisor asks for the listening one.
type socketHandoff struct {
	requestPath string
	socketPath  string
	request     *net.UnixListener
	listener    *net.UnixListener
	singleConn  bool // the supervisor could not take the socket: the request connection is its only one
}

// newSocketHandoff makes both sockets, under names that nothing else uses. Every user may connect to the request socket: only the
// worker can enter its folder, and only the one container it is for sees it.
func newSocketHandoff(dir, name string) (*socketHandoff, error) {
	h := &socketHandoff{requestPath: filepath.Join(dir, name+".ask"), socketPath: filepath.Join(dir, name+".sock")}
	var err error
	if h.request, err = net.ListenUnix("unix", &net.UnixAddr{Name: h.requestPath, Net: "unix"}); err == nil {
		if err = os.Chmod(h.requestPath, 0o666); err == nil {
			h.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: h.socketPath, Net: "unix"})
		}
	}
	if err == nil {
		h.listener.SetUnlinkOnClose(false)
		err = os.Chmod(h.socketPath, 0o600)
	}
	if err != nil {
		err = schemas.Errorf(schemas.CodeUnavailable, "socket: %w", err)
		return nil, errors.Join(err, h.close(), removeFile(h.socketPath))
	}
	return h, nil
}

// connect waits for the supervisor's request, passes it the listening socket, and connects to that. The connection waits in the
// socket's queue until the supervisor accepts it. A supervisor that cannot take a socket says so and keeps the request connection.
// Afterwards only the supervisor holds the other end: the connection ends when it ends.
func (h *socketHandoff) connect(ctx context.Context) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = h.request.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := h.request.AcceptUnix()
	if err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	stopConn := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stopConn()
	keepsConn, err := h.pass(conn)
	if err == nil && keepsConn {
		h.singleConn = true
		return conn, h.close()
	}
	if err = errors.Join(err, conn.Close()); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	dialed, err := (&net.Dialer{}).DialContext(ctx, "unix", h.socketPath)
	return dialed, errors.Join(err, h.close())
}

// pass sends the listening socket, and reports whether the supervisor keeps this connection instead.
func (h *socketHandoff) pass(conn *net.UnixConn) (keepsConn bool, err error) {
	raw, err := h.listener.SyscallConn()
	if err != nil {
		return false, err
	}
	var writeErr error
	err = raw.Control(func(fd uintptr) {
		_, _, writeErr = conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(fd)), nil)
	})
	if err := errors.Join(err, writeErr); err != nil {
		return false, err
	}
	var b [1]byte
	_, err = conn.Read(b[:])
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// close closes this process's ends of both sockets. It may be called repeatedly. The supervisor's listening socket stays open.
func (h *socketHandoff) close() (err error) {
	if h.request != nil {
		err = h.request.Close()
	}
	if h.listener != nil {
		err = errors.Join(err, h.listener.Close())
	}
	h.request, h.listener = nil, nil
	return err
}

// removeFile removes a file if it exists.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
