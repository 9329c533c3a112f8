package link

import (
	"context"
	"io"
	"sync"

	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
)

// stdin is the host's side of a process's standard input: sent exceeds taken by a window at most.
type stdin struct {
	turn chan struct{} // one token: one WriteStdin at a time

	sending sync.Mutex // held from the check of closed until the frame is written
	mu      sync.Mutex
	sent    int64
	taken   int64
	closed  bool          // by CloseStdin, by the process, or from the start
	gone    bool          // the process takes no more
	changed chan struct{} // closed and replaced at each change
}

func (in *stdin) init(open bool) {
	in.turn = make(chan struct{}, 1)
	in.changed = make(chan struct{})
	in.closed, in.gone = !open, !open
}

// WriteStdin sends bytes to the process; see sandbox.Process. When the context ends it, the process may have taken a part of them.
func (p *Process) WriteStdin(ctx context.Context, b []byte) error {
	in := &p.input
	select {
	case in.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-in.turn }()
	for len(b) > 0 {
		n := min(len(b), wire.MaxStdin)
		if err := p.awaitStdin(ctx, wire.StdinWindow-int64(n)); err != nil {
			return err
		}
		if err := p.sendStdin(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return p.awaitStdin(ctx, 0)
}

// awaitStdin waits until at most ahead of the sent bytes are not taken. Bytes that the process took before it ended are taken: the
// supervisor reports them before the end, so the count is read once more after it.
func (p *Process) awaitStdin(ctx context.Context, ahead int64) error {
	in := &p.input
	var end error
	for {
		in.mu.Lock()
		pending, gone, changed := in.sent-in.taken, in.gone, in.changed
		in.mu.Unlock()
		switch {
		case pending == 0 && ahead == 0:
			return nil
		case gone:
			return io.ErrClosedPipe
		case pending <= ahead:
			return nil
		case end != nil:
			return end
		}
		select {
		case <-changed:
		case <-p.ended:
			end = io.ErrClosedPipe
		case <-ctx.Done():
			end = ctx.Err()
		}
	}
}

func (p *Process) sendStdin(b []byte) error {
	in := &p.input
	in.sending.Lock()
	defer in.sending.Unlock()
	in.mu.Lock()
	closed := in.closed
	if !closed {
		in.sent += int64(len(b))
	}
	in.mu.Unlock()
	if closed || p.isEnded() {
		return io.ErrClosedPipe
	}
	return p.link.send(&wire.Stdin{Handle: p.handle, Data: b})
}

// CloseStdin ends the process's input; see sandbox.Process.
func (p *Process) CloseStdin() error {
	in := &p.input
	in.sending.Lock()
	defer in.sending.Unlock()
	in.mu.Lock()
	closed := in.closed
	in.closed = true
	in.mu.Unlock()
	if closed || p.isEnded() {
		return nil
	}
	return p.link.send(&wire.StdinEOF{Handle: p.handle})
}

func (p *Process) stdinTaken(m *wire.StdinTaken) {
	in := &p.input
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken = max(in.taken, m.Taken)
	if m.Closed {
		in.closed, in.gone = true, true
	}
	close(in.changed)
	in.changed = make(chan struct{})
}
