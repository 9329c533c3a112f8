package link

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// ackEvery is how many bytes of output one ack frame covers at least. The window is many times that, so nothing waits, and a
// process that prints little needs no ack frame.
const ackEvery = 64 << 10

// Process is one run; see sandbox.Process. Link.Start and Link.Resume make it.
type Process struct {
	link      *Link
	id        string
	handle    uint64
	started   chan struct{} // closed once pid and startedAt, or failure, are set
	ended     chan struct{} // closed once exit is set
	ready     chan struct{} // one token: a piece may wait for Read
	abandoned atomic.Bool   // its start was canceled: its output is dropped

	// Written before started is closed.
	pid       int
	startedAt time.Time
	failure   error

	mu       sync.Mutex
	pieces   []piece
	lent     piece    // returned by the last Read
	received [2]int64 // bytes received of each stream
	acked    [2]int64 // the offsets passed to Ack
	ackSent  [2]int64 // the offsets sent to the supervisor
	exit     sandbox.Exit
	overrun  error // the workspace's limit that the process was killed for

	quota      *quotaWatcher // nil for a process outside a Sandbox
	checkQuota sync.Once

	input stdin
}

// piece is output waiting for Read.
type piece struct {
	stream schemas.Stream
	offset int64
	data   []byte
	pooled *[]byte // the pool's memory behind data; nil for none
}

var _ sandbox.Process = (*Process)(nil)

func newProcess(l *Link, id string, stdin bool) *Process {
	p := &Process{
		link: l, id: id, started: make(chan struct{}), ended: make(chan struct{}), ready: make(chan struct{}, 1),
	}
	p.input.init(stdin)
	return p
}

// ID is the Command's.
func (p *Process) ID() string { return p.id }

// PID is the process's id as its supervisor sees it.
func (p *Process) PID() int { return p.pid }

// Read returns the next piece of output; see sandbox.Process. When the supervisor is lost, io.EOF follows the output that arrived
// before, and Wait reports the loss.
func (p *Process) Read(ctx context.Context) (sandbox.Output, error) {
	for {
		if out, ok := p.next(); ok {
			return out, nil
		}
		select {
		case <-p.ready:
			continue
		default:
		}
		select {
		case <-p.ready:
		case <-p.ended:
			// The last piece may have come between next and the end.
			if !p.waiting() {
				return sandbox.Output{}, io.EOF
			}
		case <-ctx.Done():
			return sandbox.Output{}, ctx.Err()
		}
	}
}

// next takes the first waiting piece, and recycles the one before.
func (p *Process) next() (sandbox.Output, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link.recycle(p.lent)
	p.lent = piece{}
	if len(p.pieces) == 0 {
		return sandbox.Output{}, false
	}
	p.lent, p.pieces[0] = p.pieces[0], piece{}
	p.pieces = p.pieces[1:]
	return sandbox.Output{Stream: p.lent.stream, Offset: p.lent.offset, Data: p.lent.data}, true
}

func (p *Process) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pieces) > 0
}

// streams are the streams in the order of wire's numbers, from wire.Stdout on.
var streams = [...]schemas.Stream{schemas.Stdout, schemas.Stderr}

// Ack confirms that output is stored; see sandbox.Process. Errors: invalid_argument for an unknown stream or an offset that was
// not read.
func (p *Process) Ack(stream schemas.Stream, offset int64) error {
	i := slices.Index(streams[:], stream)
	if i < 0 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "stream: %q is neither stdout nor stderr", stream)
	}
	p.mu.Lock()
	if offset < 0 || offset > p.received[i] {
		p.mu.Unlock()
		return schemas.Errorf(schemas.CodeInvalidArgument, "offset: cannot ack %d of %s: %d bytes were received", offset, stream, p.received[i])
	}
	p.acked[i] = max(p.acked[i], offset)
	due := p.acked[i]-p.ackSent[i] >= ackEvery
	if due {
		p.ackSent[i] = p.acked[i]
		offset = p.acked[i]
	}
	p.mu.Unlock()
	if !due || p.isEnded() {
		return nil // an ended process waits for no ack
	}
	return p.link.send(&wire.Ack{Handle: p.handle, Stream: wire.Stdout + byte(i), Offset: offset})
}

// Signal sends a signal to the process's group; see sandbox.Process.
func (p *Process) Signal(sig sandbox.Signal) error {
	if sig < 1 || sig > 64 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "signal: %d is out of range 1 to 64", sig)
	}
	if p.isEnded() {
		return p.signalError(sig, wire.SignalGone)
	}
	seq, answer := p.link.newSignal()
	if err := p.link.send(&wire.Signal{Handle: p.handle, Seq: seq, Signal: uint32(sig)}); err != nil {
		p.link.signaled(seq, wire.SignalGone)
		return err
	}
	// The answer may follow the exit that the signal caused, so the end of the process does not end the wait.
	return p.signalError(sig, <-answer)
}

// Kill ends the whole tree; see sandbox.Process.
func (p *Process) Kill(grace time.Duration) error {
	if p.isEnded() {
		return nil
	}
	err := p.link.send(&wire.Kill{Handle: p.handle, Grace: int64(max(0, grace))})
	if p.isEnded() {
		return nil
	}
	return err
}

// Resize changes the size of the process's terminal; see sandbox.Process.
func (p *Process) Resize(size schemas.TerminalSize) error {
	if err := size.Validate(); err != nil {
		return err
	}
	if p.isEnded() {
		return p.signalError(0, wire.SignalGone)
	}
	if p.link.version < wire.TerminalVersion {
		return nil // it has no terminal
	}
	return p.link.send(&wire.Resize{Handle: p.handle, Rows: uint32(size.Rows), Cols: uint32(size.Cols)})
}

// Wait blocks for the exit record; see sandbox.Process. By then all output has arrived: Read returns the rest of it
// without blocking.
func (p *Process) Wait(ctx context.Context) (sandbox.Exit, error) {
	if !p.isEnded() {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return sandbox.Exit{}, ctx.Err()
		}
	}
	if p.quota != nil {
		p.checkQuota.Do(func() { p.exit.Limit = p.quota.exceededBy(p) })
	}
	return p.exit, nil
}

// Release lets the supervisor forget the process; see sandbox.Process. It does nothing for a supervisor without a reattach window.
// Errors: unavailable.
func (p *Process) Release() error { return p.link.postpone(&wire.Release{Handle: p.handle}) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *Process) isStarted() bool { return isClosed(p.started) }
func (p *Process) isEnded() bool   { return isClosed(p.ended) }

// The methods below belong to the reading goroutine.

func (p *Process) spawned(m *wire.Spawned) error {
	if p.isStarted() {
		return wire.ErrOrder
	}
	p.pid, p.startedAt = int(m.PID), time.Unix(0, m.Started)
	close(p.started)
	return nil
}

func (p *Process) fail(err error) error {
	if p.isStarted() {
		return wire.ErrOrder
	}
	p.failure = err
	close(p.started)
	return nil
}

// queue adds a piece for Read. After Resume a piece may begin before the resumed offset; queue cuts it.
func (p *Process) queue(kind byte, offset int64, next piece) error {
	i := kind - wire.Stdout
	p.mu.Lock()
	defer p.mu.Unlock()
	end := offset + int64(len(next.data))
	if offset > p.received[i] || end-p.ackSent[i] > wire.Window+wire.Tail {
		return wire.ErrOrder
	}
	if end <= p.received[i] {
		p.link.recycle(next)
		return nil
	}
	next.data = next.data[p.received[i]-offset:]
	next.stream, next.offset = streams[i], p.received[i]
	p.received[i] = end
	// A process that prints a byte at a time, with a slow reader, would cost far more in pieces than in bytes.
	if n := len(p.pieces); n > 0 && p.pieces[n-1].joins(&next) {
		p.pieces[n-1].data = append(p.pieces[n-1].data, next.data...)
		return nil
	}
	p.pieces = append(p.pieces, next)
	select {
	case p.ready <- struct{}{}:
	default:
	}
	return nil
}

// joins reports whether next can be part of the same piece: of the same stream, and both small.
func (p *piece) joins(next *piece) bool {
	return p.stream == next.stream && p.pooled == nil && next.pooled == nil && len(p.data)+len(next.data) <= minPooled
}

func (p *Process) end(m *wire.Exit) {
	e := sandbox.Exit{
		Reason: schemas.ReasonExited, Code: int(m.Code), Signal: sandbox.Signal(m.Signal),
		Stdout: m.Stdout, Stderr: m.Stderr,
		UserTime: time.Duration(m.UserTime), SystemTime: time.Duration(m.SystemTime), MaxRSS: m.MaxRSS,
		Killed: int(m.Killed), Started: time.Unix(0, m.Started), Ended: time.Unix(0, m.Ended),
	}
	if m.Signal != 0 {
		e.Code = schemas.ExitSignalBase + int(m.Signal)
	}
	switch m.Reason {
	case wire.ReasonKilled:
		e.Reason = schemas.ReasonKilled
	case wire.ReasonOOM:
		e.Reason = schemas.ReasonOOM
	case wire.ReasonTimedOut:
		e.Reason, e.Code = schemas.ReasonTimedOut, schemas.ExitTimedOut
	}
	p.exit = e
	close(p.ended)
}

// lose ends a process whose supervisor is gone.
func (p *Process) lose(err error) {
	if !p.isStarted() {
		p.failure = schemas.Errorf(schemas.CodeUnavailable, "the sandbox ended before the command started: %w", err)
		close(p.started)
	}
	p.mu.Lock()
	p.exit = sandbox.Exit{
		Reason: schemas.ReasonLost, Code: -1, Stdout: p.received[0], Stderr: p.received[1], Started: p.startedAt, Ended: time.Now(),
	}
	p.mu.Unlock()
	close(p.ended)
}

func startError(m *wire.Failed) error {
	switch m.Cause {
	case wire.CauseNotFound:
		return &sandbox.StartError{Code: schemas.ExitNotFound, Message: m.Detail}
	case wire.CauseNotExecutable, wire.CauseTooLong, wire.CauseDir:
		return &sandbox.StartError{Code: schemas.ExitNotExecutable, Message: m.Detail}
	case wire.CauseDuplicate:
		return schemas.Errorf(schemas.CodeConflict, "%s", m.Detail)
	case wire.CauseBusy, wire.CauseEnding:
		return schemas.Errorf(schemas.CodeUnavailable, "%s: %w", m.Detail, sandbox.ErrRefused)
	default:
		return schemas.Errorf(schemas.CodeInternal, "%s", m.Detail)
	}
}

func (p *Process) signalError(sig sandbox.Signal, result wire.SignalResult) error {
	switch result {
	case wire.SignalSent:
		return nil
	case wire.SignalGone:
		return schemas.Errorf(schemas.CodeNotFound, "process %s has ended", p.id)
	case wire.SignalDenied:
		return schemas.Errorf(schemas.CodePermissionDenied, "signal %d: the process runs as another user", sig)
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "signal: the system has no signal %d", sig)
	}
}
