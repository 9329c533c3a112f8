package shortage

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Of reports whether err is that a file descriptor could not be had.
func Of(err error) bool { return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) }

// Explain gives a shortage the code unavailable and the way out. It returns every other error unchanged.
func Explain(err error) error {
	if !Of(err) {
		return err
	}
	way := "this process has all the files open that it may: try again, close what is not used, or raise its limit (ulimit -n; LimitNOFILE= of systemd)"
	if errors.Is(err, syscall.ENFILE) {
		way = "this machine has all the files open that it may: try again, end what holds them, or raise the sysctl fs.file-max"
	}
	return schemas.Errorf(schemas.CodeUnavailable, "%w: %s", err, way)
}

// reserve is how many descriptors Check wants: to reattach the 16 sandboxes that are reopened at a time takes about three each, and a start of
// the NATS server on its files as many.
const reserve = 64

// Check reports whether this process can open some 64 files more. Errors: unavailable.
func Check() (err error) {
	var open []*os.File
	defer func() {
		for _, f := range open {
			_ = f.Close() // nothing was written
		}
	}()
	for range reserve {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return Explain(fmt.Errorf("%d more files are needed: %w", reserve, err))
		}
		open = append(open, f)
	}
	return nil
}

const (
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
)

// Accept is l.Accept that waits while the system lacks what a connection needs: up to a second between two tries, as the server of net/http
// does. Errors: net.ErrClosed once l is closed, and others that do not pass.
func Accept(l net.Listener) (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		conn, err := l.Accept()
		if err == nil || !passes(err) {
			return conn, err
		}
		time.Sleep(pause)
	}
}

// passes reports whether to accept again may succeed. See accept(2).
func passes(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOMEM, syscall.ENOBUFS, syscall.EAGAIN, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return Of(err)
}
