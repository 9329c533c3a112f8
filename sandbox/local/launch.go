package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

const (
	// busyTries and busyWait: the supervisor's file was just written, and for a moment another thread's fork can hold it
	// open for writing still.
	busyTries = 50
	busyWait  = 2 * time.Millisecond
)

// running is a supervisor that was started.
type running struct {
	conn   net.Conn
	socket string
	cmd    *exec.Cmd
	gone   chan struct{}
}

// start makes the listening socket, starts a supervisor that inherits it, and connects. The connection is queued by the
// kernel until the supervisor takes it, so there is nothing to wait for here.
func start(ctx context.Context, dir string, command []string, id string) (*running, error) {
	sum := sha256.Sum256([]byte(id))
	socket := filepath.Join(dir, hex.EncodeToString(sum[:10])+".sock")
	listener, err := listen(ctx, socket)
	if err != nil {
		return nil, err
	}
	r := &running{socket: socket, gone: make(chan struct{})}
	if err = r.spawn(command, listener); err == nil {
		r.conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			r.force()
			<-r.gone
		}
	}
	err = errors.Join(err, listener.Close())
	if err != nil {
		r.remove()
		return nil, schemas.Errorf(schemas.CodeUnavailable, "start the supervisor: %w", err)
	}
	return r, nil
}

// listen makes the socket, in place of one that nobody listens on any more.
func listen(ctx context.Context, socket string) (*os.File, error) {
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

// spawn starts the supervisor in a session of its own, so that a Ctrl+C at the terminal is not for it: the worker decides what
// ends. Its output goes nowhere, since it may outlive whoever reads the worker's.
func (r *running) spawn(command []string, listener *os.File) error {
	for try := 0; ; try++ {
		r.cmd = exec.Command(command[0], command[1:]...)
		r.cmd.Env = []string{}
		r.cmd.Dir = "/"
		r.cmd.ExtraFiles = []*os.File{listener}
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err := r.cmd.Start()
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ETXTBSY) || try >= busyTries {
			return err
		}
		time.Sleep(busyWait)
	}
	go func() {
		// How the supervisor ended says nothing: what counts came over the socket.
		_ = r.cmd.Wait()
		close(r.gone)
	}()
	return nil
}

// force ends the supervisor, and by that the processes it started itself.
func (r *running) force() { _ = r.cmd.Process.Kill() }

// remove takes the socket's name away, which the supervisor may have done already.
func (r *running) remove() { _ = os.Remove(r.socket) }
