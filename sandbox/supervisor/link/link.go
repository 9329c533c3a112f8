package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// Link is one connection to a supervisor. All its methods may be called at the same time.
type Link struct {
	conn net.Conn
	pid  int
	done chan struct{} // closed when the reader has ended and every process knows
	pool sync.Pool     // of *[]byte of wire.MaxOutput bytes

	writing sync.Mutex
	later   []byte      // frames that go out with the next ones; guarded by writing
	flush   *time.Timer // sends them where there are none; guarded by writing

	mu      sync.Mutex
	procs   map[uint64]*Process
	last    uint64
	listed  []chan *wire.Listed // who asked, in order
	signals map[uint32]chan<- wire.SignalResult
	signal  uint32 // the last one's number
	ended   bool
	err     error // why it ended
}

// Open greets the supervisor on a connection and takes the connection over, on failure too. reattachWindow is how long the supervisor
// stays when the connection ends; 0 ends it and everything in it. Errors: unavailable when no supervisor answers.
func Open(ctx context.Context, conn net.Conn, reattachWindow time.Duration) (*Link, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	r := wire.NewReader(conn)
	pid, err := greet(conn, r, reattachWindow)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the supervisor does not answer: %w", errors.Join(err, conn.Close()))
	}
	l := &Link{conn: conn, pid: pid, done: make(chan struct{}), procs: make(map[uint64]*Process)}
	l.pool.New = func() any {
		b := make([]byte, wire.MaxOutput)
		return &b
	}
	go l.read(r)
	return l, nil
}

// Reopen is Open for a supervisor that has been greeted by an earlier process: the handles of what it holds are not given out
// again. Errors: unavailable.
func Reopen(ctx context.Context, conn net.Conn, reattachWindow time.Duration) (*Link, error) {
	l, err := Open(ctx, conn, reattachWindow)
	if err != nil {
		return nil, err
	}
	held, err := l.List(ctx)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		l.last = max(l.last, h.Handle)
	}
	return l, nil
}

func greet(conn net.Conn, r *wire.Reader, reattachWindow time.Duration) (int, error) {
	hello := wire.Hello{Version: wire.Version, PID: uint32(os.Getpid()), ReattachWindow: int64(reattachWindow)}
	if _, err := conn.Write(hello.Append(nil)); err != nil {
		return 0, err
	}
	t, n, err := r.Next()
	if err != nil {
		return 0, err
	}
	if t != wire.TypeHello || n > 64 {
		return 0, wire.ErrOrder
	}
	b := make([]byte, n)
	if err := r.Payload(b); err != nil {
		return 0, err
	}
	if err := hello.Decode(b); err != nil {
		return 0, err
	}
	if hello.Version != wire.Version {
		return 0, fmt.Errorf("%w: %d, this is %d", wire.ErrVersion, hello.Version, wire.Version)
	}
	return int(hello.PID), nil
}

// PID is the supervisor's process id, as it sees it itself.
func (l *Link) PID() int { return l.pid }

// Done is closed when the connection has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// Close ends the connection and waits for its reader. What the supervisor does then depends on its reattachWindow.
func (l *Link) Close() error {
	err := l.conn.Close()
	<-l.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Terminate asks the supervisor to end every process and itself: SIGTERM, the grace, SIGKILL. It does not wait; Done is
// closed when the supervisor has gone. Errors: unavailable when it has gone already.
func (l *Link) Terminate(grace time.Duration) error {
	m := wire.Terminate{Grace: int64(max(0, grace))}
	return l.write(m.Append(nil))
}

// write sends whole frames.
func (l *Link) write(b []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.send(b)
}

// send is write, with writing held.
func (l *Link) send(b []byte) error {
	if len(l.later) > 0 {
		b = append(l.later, b...)
		l.later = nil
	}
	if _, err := l.conn.Write(b); err != nil {
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone: %w", err)
	}
	return nil
}

const (
	// postponed is how long a frame that nobody waits for may wait for another one to go with: a write of its own, and the
	// supervisor's waking up for it, would cost a short command a noticeable part of its time.
	postponed = 50 * time.Millisecond
	// mostPostponed is how many bytes of them may wait.
	mostPostponed = 4 << 10
)

// postpone sends a whole frame with the next ones, or soon. Should it be lost with the connection, nobody misses it.
func (l *Link) postpone(b []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if len(l.later)+len(b) > mostPostponed {
		return l.send(b)
	}
	if len(l.later) == 0 {
		if l.flush == nil {
			l.flush = time.AfterFunc(postponed, func() { _ = l.write(nil) })
		} else {
			l.flush.Reset(postponed)
		}
	}
	l.later = append(l.later, b...)
	return nil
}

// Start asks for a process and returns once it runs, or has failed to, as sandbox.Sandbox.Start says. The Spawn is complete
// but for its handle.
func (l *Link) Start(ctx context.Context, m *wire.Spawn) (*Process, error) {
	if m.Size() > wire.MaxFrame {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "arguments and environment take %d bytes; at most %d can be passed on",
			m.Size(), wire.MaxFrame)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := newProcess(l, m.ID, m.Stdin)
	if err := l.add(p); err != nil {
		return nil, err
	}
	m.Handle = p.handle
	if err := l.write(m.Append(make([]byte, 0, m.Size()+64))); err != nil {
		l.remove(p)
		return nil, err
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		// The supervisor takes frames in order: if the process was started, this ends it.
		p.abandon()
		kill := wire.Kill{Handle: p.handle}
		return nil, errors.Join(ctx.Err(), l.write(kill.Append(nil)))
	}
	if p.failure != nil {
		return nil, p.failure
	}
	return p, nil
}

// List tells every process the supervisor has, running or ended and not released. Errors: unavailable.
func (l *Link) List(ctx context.Context) ([]wire.Held, error) {
	answer := make(chan *wire.Listed, 1)
	l.writing.Lock()
	l.mu.Lock()
	l.listed = append(l.listed, answer)
	l.mu.Unlock()
	err := l.send(wire.AppendList(nil))
	l.writing.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		return m.Processes, nil
	case <-l.done:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone: %w", l.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Resume takes over a process that List told of, from these offsets of its streams on: what comes before is kept safe already.
// Errors: unavailable; conflict when this Link has it already.
func (l *Link) Resume(held wire.Held, stdout, stderr int64) (*Process, error) {
	p := newProcess(l, held.ID, !held.StdinClosed)
	p.handle, p.pid, p.begun = held.Handle, int(held.PID), time.Unix(0, held.Started)
	p.got = [2]int64{max(stdout, held.Stdout), max(stderr, held.Stderr)}
	p.acked, p.told = p.got, p.got
	p.input.sent, p.input.taken = held.StdinTaken+held.StdinQueued, held.StdinTaken
	close(p.started)
	l.mu.Lock()
	_, there := l.procs[p.handle]
	gone := l.ended
	if !there && !gone {
		l.procs[p.handle] = p
		l.last = max(l.last, p.handle)
	}
	l.mu.Unlock()
	switch {
	case gone:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone")
	case there:
		return nil, schemas.Errorf(schemas.CodeConflict, "process %s has been resumed already", held.ID)
	}
	m := wire.Resume{Handle: p.handle, Stdout: p.got[0], Stderr: p.got[1]}
	if err := l.write(m.Append(nil)); err != nil {
		l.remove(p)
		return nil, err
	}
	return p, nil
}

func (l *Link) add(p *Process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone (%v): %w", l.err, sandbox.ErrEnded)
	}
	l.last++
	p.handle = l.last
	l.procs[p.handle] = p
	return nil
}

func (l *Link) remove(p *Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.procs, p.handle)
}

func (l *Link) find(handle uint64) *Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.procs[handle]
}

// ask numbers a signal and says where its answer will come.
func (l *Link) ask() (seq uint32, answer <-chan wire.SignalResult) {
	c := make(chan wire.SignalResult, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signal++
	if l.signals == nil {
		l.signals = make(map[uint32]chan<- wire.SignalResult)
	}
	l.signals[l.signal] = c
	return l.signal, c
}

// answer hands on what became of a signal.
func (l *Link) answer(seq uint32, result wire.SignalResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.signals[seq]; c != nil {
		delete(l.signals, seq)
		c <- result
	}
}

// startError is what a Failed frame means to a caller.
func startError(m *wire.Failed) error {
	switch m.Cause {
	case wire.CauseNotFound:
		return &sandbox.StartError{Code: schemas.ExitNotFound, Message: m.Detail}
	case wire.CauseNotExecutable, wire.CauseTooLong, wire.CauseDir:
		return &sandbox.StartError{Code: schemas.ExitNotExecutable, Message: m.Detail}
	case wire.CauseDuplicate:
		return schemas.Errorf(schemas.CodeConflict, "%s", m.Detail)
	case wire.CauseBusy, wire.CauseEnding:
		return schemas.Errorf(schemas.CodeUnavailable, "%s", m.Detail)
	default:
		return schemas.Errorf(schemas.CodeInternal, "%s", m.Detail)
	}
}
