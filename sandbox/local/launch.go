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

	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
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

// socketName names a sandbox's socket.
func socketName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:10])
}

func (p *Provider) socket(name string) string { return filepath.Join(p.dir, name+".sock") }

// start makes the listening socket, starts a supervisor that inherits it, and connects. The connection is queued by the
// kernel until the supervisor takes it, so there is nothing to wait for here.
func start(ctx context.Context, socket string, command []string) (*running, error) {
	listener, err := link.Listen(ctx, socket)
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
