package link

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// ackEvery is how much output is acked in one frame, where less has been: the window is many times that, so nothing waits,
// and a process that prints little needs no ack frame at all.
const ackEvery = 64 << 10

// Process is one run, as sandbox.Process says. The zero value is of no use; Link.Start and Link.Resume make them.
type Process struct {
	link      *Link
	id        string
	handle    uint64
	started   chan struct{} // closed once pid and begun, or failure, are there
	ended     chan struct{} // closed once exit is there
	ready     chan struct{} // one token: there is something to Read
	abandoned atomic.Bool   // its start was given up: nobody reads

	// Written before started is closed.
	pid     int
	begun   time.Time
	failure error

	mu     sync.Mutex
	pieces []piece
	lent   piece    // the last Read's
	got    [2]int64 // bytes received of each stream
	acked  [2]int64 // as Ack was told
	told   [2]int64 // as the supervisor was told
	exit   sandbox.Exit
	why    error // it was killed for its workspace's sake

	guard  *guard // nil where nobody looks after the workspace
	judged sync.Once

	input stdin
}

// piece is output waiting for Read.
type piece struct {
	stream schemas.Stream
	offset int64
	data   []byte
	pool   *[]byte // where data came from; nil when it is its own
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

// Read returns the next piece of output; see sandbox.Process. When the supervisor is lost, io.EOF follows what had arrived
// before, and Wait tells the loss.
func (p *Process) Read(ctx context.Context) (sandbox.Output, error) {
	for {
		p.mu.Lock()
		p.link.recycle(p.lent)
		p.lent = piece{}
		if len(p.pieces) > 0 {
			next := p.pieces[0]
			p.pieces[0] = piece{}
			p.pieces = p.pieces[1:]
			p.lent = next
			p.mu.Unlock()
			return sandbox.Output{Stream: next.stream, Offset: next.offset, Data: next.data}, nil
		}
		p.mu.Unlock()
		select {
		case <-p.ready:
			continue
		default:
		}
		select {
		case <-p.ready:
		case <-p.ended:
			// The last piece may have come between the look and the end.
			if !p.waiting() {
				return sandbox.Output{}, io.EOF
			}
		case <-ctx.Done():
			return sandbox.Output{}, ctx.Err()
		}
	}
}

func (p *Process) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pieces) > 0
}

// Ack says that output is kept safe; see sandbox.Process. Errors: invalid_argument for a stream there is not, or an offset
// that was never read.
func (p *Process) Ack(stream schemas.Stream, offset int64) error {
	kind := wire.Stdout
	switch stream {
	case schemas.Stdout:
	case schemas.Stderr:
		kind = wire.Stderr
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "stream: %q is neither stdout nor stderr", stream)
	}
	i := kind - wire.Stdout
	p.mu.Lock()
	if offset < 0 || offset > p.got[i] {
		p.mu.Unlock()
		return schemas.Errorf(schemas.CodeInvalidArgument, "offset: %d acked of %s, of which %d bytes have come", offset, stream, p.got[i])
	}
	p.acked[i] = max(p.acked[i], offset)
	tell := p.acked[i]-p.told[i] >= ackEvery
	if tell {
		p.told[i] = p.acked[i]
		offset = p.acked[i]
	}
	p.mu.Unlock()
	if !tell || p.isEnded() {
		return nil // an ended process waits for no ack
	}
	m := wire.Ack{Handle: p.handle, Stream: kind, Offset: offset}
	return p.link.write(m.Append(nil))
}

// Signal sends a signal to the process's group; see sandbox.Process.
func (p *Process) Signal(sig sandbox.Signal) error {
	if sig < 1 || sig > 64 {
		return schemas.Errorf(schemas.CodeInvalidArgument, "signal: %d is not one", sig)
	}
	if p.isEnded() {
		return p.signaled(sig, wire.SignalGone)
	}
	seq, answer := p.link.ask()
	m := wire.Signal{Handle: p.handle, Seq: seq, Signal: uint32(sig)}
	if err := p.link.write(m.Append(nil)); err != nil {
		p.link.answer(seq, wire.SignalGone)
		return err
	}
	// The answer may come after the exit that the signal brought about, so the end of the process does not end the wait.
	select {
	case result := <-answer:
		return p.signaled(sig, result)
	case <-p.link.done:
	}
	select {
	case result := <-answer:
		return p.signaled(sig, result)
	default:
		return p.signaled(sig, wire.SignalGone)
	}
}

// signaled is what the supervisor's answer means to a caller.
func (p *Process) signaled(sig sandbox.Signal, result wire.SignalResult) error {
	switch result {
	case wire.SignalSent:
		return nil
	case wire.SignalGone:
		return schemas.Errorf(schemas.CodeNotFound, "process %s has ended", p.id)
	case wire.SignalDenied:
		return schemas.Errorf(schemas.CodePermissionDenied, "signal %d: the process runs as another user", sig)
	default:
		return schemas.Errorf(schemas.CodeInvalidArgument, "signal: the system knows no %d", sig)
	}
}

// Kill ends the whole tree; see sandbox.Process.
func (p *Process) Kill(grace time.Duration) error {
	if p.isEnded() {
		return nil
	}
	m := wire.Kill{Handle: p.handle, Grace: int64(max(0, grace))}
	err := p.link.write(m.Append(nil))
	if p.isEnded() {
		return nil
	}
	return err
}

// Wait blocks for the exit record; see sandbox.Process. By then all output has arrived: Read gives what is left of it
// without blocking.
func (p *Process) Wait(ctx context.Context) (sandbox.Exit, error) {
	if !p.isEnded() {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return sandbox.Exit{}, ctx.Err()
		}
	}
	if p.guard != nil {
		p.judged.Do(func() { p.exit.Limit = p.guard.verdict(p) })
	}
	return p.exit, nil
}

// Release lets the supervisor forget the process; see sandbox.Process. Where it keeps none, there is nothing to release.
// Errors: unavailable.
func (p *Process) Release() error {
	return p.link.postpone(wire.Handle(p.handle).Append(nil, wire.TypeRelease))
}

func (p *Process) isEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// abandon gives up a process whose start was given up: its output is dropped, and its end is for nobody.
func (p *Process) abandon() { p.abandoned.Store(true) }
