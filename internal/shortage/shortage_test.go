package shortage_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// listener fails with these errors, and then accepts.
type listener struct {
	net.Listener
	errs []error
	conn net.Conn
}

func (l *listener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.conn, nil
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func acceptError(e syscall.Errno) error {
	return &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", e)}
}

func TestAcceptWaitsForWhatPasses(t *testing.T) {
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	l := &listener{conn: conn, errs: []error{acceptError(syscall.EMFILE), acceptError(syscall.ENFILE), acceptError(syscall.ENOMEM), acceptError(syscall.ECONNABORTED)}}
	got, err := shortage.Accept(l)
	testkit.Must(t, err)
	if got != conn {
		t.Errorf("connection = %v, want that of the listener", got)
	}
	l.errs = []error{net.ErrClosed}
	if _, err := shortage.Accept(l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error = %v, want %v", err, net.ErrClosed)
	}
}

func TestExplain(t *testing.T) {
	for e, way := range map[syscall.Errno]string{syscall.EMFILE: "ulimit -n", syscall.ENFILE: "fs.file-max"} {
		err := shortage.Explain(schemas.Errorf(schemas.CodeInvalidArgument, "workspace: %w", &os.PathError{Op: "open", Path: "/w", Err: e}))
		testkit.WantCode(t, err, schemas.CodeUnavailable)
		testkit.Contains(t, "error", err.Error(), way)
		testkit.Contains(t, "error", err.Error(), "workspace: open /w: too many open files")
	}
	if err := shortage.Explain(os.ErrNotExist); !errors.Is(err, os.ErrNotExist) || schemas.CodeOf(err) != schemas.CodeInternal {
		t.Errorf("error = %v, want it unchanged", err)
	}
	testkit.Must(t, shortage.Check())
}
