package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// Link is one connection to a supervisor. Its methods are safe for concurrent use.
type Link struct {
	conn net.Conn
	pid  int
	// version is the supervisor's version of the protocol.
	version uint32
	done    chan struct{} // closed when the reader has ended and every process has its exit
	pool    sync.Pool     // of *[]byte of wire.MaxOutput bytes
	sockets *sockets      // of the reader alone; nil where none can come

	writing   sync.Mutex
	postponed []byte      // frames that go out with the next ones; guarded by writing
	flush     *time.Timer // sends them when no frame follows; guarded by writing

	mu          sync.Mutex
	procs       map[uint64]*Process
	lastHandle  uint64
	lists       []chan *wire.Listed // the pending List calls, in order
	signals     map[uint32]chan<- wire.SignalResult
	lastSignal  uint32
	connects    map[uint32]chan<- connected
	lastConnect uint32
	ended       bool
	err         error // why it ended
}

// Open greets the supervisor on a connection and takes the connection over, on failure too. reattachWindow is how long the
// supervisor stays after the connection ends; 0 ends it and everything in it. Errors: unavailable when no supervisor of a supported
// version answers.
func Open(ctx context.Context, conn net.Conn, reattachWindow time.Duration) (*Link, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	r, in := wire.NewReader(conn), (*sockets)(nil)
	if c, ok := conn.(*net.UnixConn); ok {
		in = &sockets{conn: c, oob: make([]byte, syscall.CmsgSpace(4*maxSockets))}
		r = wire.NewReader(in)
	}
	hello, err := greet(conn, r, reattachWindow)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "connect to the sandbox's supervisor: %w", errors.Join(err, conn.Close()))
	}
	return newLink(conn, r, in, hello), nil
}

func newLink(conn net.Conn, r *wire.Reader, in *sockets, hello wire.Hello) *Link {
	l := &Link{
		conn: conn, pid: int(hello.PID), version: hello.Version, done: make(chan struct{}), procs: make(map[uint64]*Process),
		signals: make(map[uint32]chan<- wire.SignalResult), connects: make(map[uint32]chan<- connected), sockets: in,
	}
	l.pool.New = func() any {
		b := make([]byte, wire.MaxOutput)
		return &b
	}
	go l.read(r)
	return l
}

// TakeOver is Reopen, and kills the supervisor when that fails; gone is closed once it has exited. When the kernel does not let go of it
// within exitAfter, TakeOver returns a Link whose connection has ended: the Sandbox of such a supervisor ends when it exits. Errors:
// Reopen's, of a supervisor that is gone.
func TakeOver(ctx context.Context, socket string, reattachWindow time.Duration, kill func(), gone <-chan struct{}) (*Link, error) {
	l, err := Reopen(ctx, socket, reattachWindow)
	if err == nil {
		return l, nil
	}
	kill()
	late := time.NewTimer(exitAfter)
	defer late.Stop()
	select {
	case <-gone:
		return nil, err
	case <-late.C:
	}
	conn, other := net.Pipe()
	_ = other.Close() // a pipe's Close does not fail
	return newLink(conn, wire.NewReader(conn), nil, wire.Hello{}), nil
}

// Reopen connects to the socket of a supervisor that an earlier process has greeted, and is then Open: the handles of its processes
// are not used again. Errors: the system's when nothing listens on the socket; unavailable.
func Reopen(ctx context.Context, socket string, reattachWindow time.Duration) (*Link, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	l, err := Open(ctx, conn, reattachWindow)
	if err != nil {
		return nil, err
	}
	list, err := l.List(ctx)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, state := range list {
		l.lastHandle = max(l.lastHandle, state.Handle)
	}
	return l, nil
}

// greet exchanges Hello and returns the supervisor's. The supervisor may be older or newer: see the rules of package wire.
func greet(conn net.Conn, r *wire.Reader, reattachWindow time.Duration) (theirs wire.Hello, err error) {
	ours := wire.Hello{Version: wire.Version, PID: uint32(os.Getpid()), ReattachWindow: int64(reattachWindow)}
	if _, err = conn.Write(wire.Append(nil, &ours)); err != nil {
		return theirs, err
	}
	t, n, err := r.Next()
	if err != nil {
		return theirs, err
	}
	if t != wire.TypeHello || n > maxHello {
		return theirs, wire.ErrOrder
	}
	b := make([]byte, n)
	if err = r.Payload(b); err != nil {
		return theirs, err
	}
	if err = wire.Decode(b, &theirs); err != nil {
		return theirs, err
	}
	if theirs.Version < wire.MinVersion {
		return theirs, fmt.Errorf("%w: the supervisor has version %d, this worker needs %d or later", wire.ErrVersion, theirs.Version, wire.MinVersion)
	}
	return theirs, nil
}

// maxHello bounds the payload of a supervisor's Hello, of any version: 1 KiB.
const maxHello = 1 << 10

// PID is the supervisor's process id, as it sees it itself.
func (l *Link) PID() int { return l.pid }

// Done is closed when the connection has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close ends the connection and waits for its reader. The supervisor then waits for its reattachWindow.
func (l *Link) Close() error {
	err := l.conn.Close()
	<-l.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Terminate asks the supervisor to end every process and itself: SIGTERM, the grace, SIGKILL. It does not wait; Done is
// closed when the supervisor has exited. Errors: unavailable when it has exited already.
func (l *Link) Terminate(grace time.Duration) error {
	return l.send(&wire.Terminate{Grace: int64(max(0, grace))})
}

func (l *Link) send(m wire.Message) error {
	b := wire.Append(make([]byte, 0, wire.Size(m)), m)
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.write(b)
}

// write writes whole frames. writing is held.
func (l *Link) write(b []byte) error {
	if len(l.postponed) > 0 {
		b = append(l.postponed, b...)
		l.postponed = nil
	}
	if _, err := l.conn.Write(b); err != nil {
		return supervisorGone(err)
	}
	return nil
}

func supervisorGone(err error) error {
	return schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone: %w", err)
}

const (
	// flushAfter is how long a postponed frame may wait for another one: a separate write, and the supervisor's wake-up for it,
	// would cost a short command a noticeable part of its time.
	flushAfter = 50 * time.Millisecond
	// maxPostponed is how many bytes may wait.
	maxPostponed = 4 << 10
)

// postpone sends a message with the next frame, or after flushAfter. Nothing may depend on its arrival: it can be lost with the
// connection.
func (l *Link) postpone(m wire.Message) error {
	b := wire.Append(nil, m)
	l.writing.Lock()
	defer l.writing.Unlock()
	if len(l.postponed)+len(b) > maxPostponed {
		return l.write(b)
	}
	if len(l.postponed) == 0 {
		if l.flush == nil {
			l.flush = time.AfterFunc(flushAfter, func() {
				l.writing.Lock()
				defer l.writing.Unlock()
				_ = l.write(nil)
			})
		} else {
			l.flush.Reset(flushAfter)
		}
	}
	l.postponed = append(l.postponed, b...)
	return nil
}
