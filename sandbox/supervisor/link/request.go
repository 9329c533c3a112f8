package link

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/wire"
	"github.com/sluice-dev/sluice/schemas"
)

// Start starts a process and returns once it runs; see sandbox.Sandbox.Start for the errors. The Spawn is complete but for its
// handle.
func (l *Link) Start(ctx context.Context, m *wire.Spawn) (*Process, error) {
	if n := wire.Size(m); n > wire.MaxFrame {
		return nil, schemas.Errorf(schemas.CodeTooLarge, "arguments and environment take %d bytes: the maximum is %d", n, wire.MaxFrame)
	}
	if m.Rows > 0 && l.version < wire.TerminalVersion {
		return nil, schemas.Errorf(schemas.CodeUnavailable,
			"the sandbox was created by an older version of Sluice, which has no terminals: end its session: %w", sandbox.ErrRefused)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := newProcess(l, m.ID, m.Stdin)
	if err := l.add(p); err != nil {
		return nil, err
	}
	m.Handle = p.handle
	if err := l.send(m); err != nil {
		l.remove(p)
		return nil, err
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		// The supervisor reads frames in order: if it started the process, this ends it.
		p.abandoned.Store(true)
		return nil, errors.Join(ctx.Err(), l.send(&wire.Kill{Handle: p.handle}))
	}
	if p.failure != nil {
		return nil, p.failure
	}
	return p, nil
}

// List returns every process of the supervisor, running, or ended and not released. Errors: unavailable.
func (l *Link) List(ctx context.Context) ([]wire.ProcessState, error) {
	m, err := l.list(ctx, false)
	if err != nil {
		return nil, err
	}
	return m.Processes, nil
}

// list asks for every process, and what it uses if usage is set: an older supervisor does not measure.
func (l *Link) list(ctx context.Context, usage bool) (*wire.Listed, error) {
	answer := make(chan *wire.Listed, 1)
	l.writing.Lock()
	l.mu.Lock()
	l.lists = append(l.lists, answer)
	l.mu.Unlock()
	err := l.write(wire.Append(nil, &wire.List{Usage: usage}))
	l.writing.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		return m, nil
	case <-l.done:
		return nil, supervisorGone(l.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Resume takes over a process that List returned. Its output follows from these offsets on; the caller has stored what comes before.
// Errors: unavailable; conflict when this Link has resumed it already.
func (l *Link) Resume(state wire.ProcessState, stdout, stderr int64) (*Process, error) {
	p := newProcess(l, state.ID, !state.StdinClosed)
	p.handle, p.pid, p.startedAt = state.Handle, int(state.PID), time.Unix(0, state.Started)
	p.received = [2]int64{max(stdout, state.Stdout), max(stderr, state.Stderr)}
	p.acked, p.ackSent = p.received, p.received
	p.input.sent, p.input.taken = state.StdinTaken+state.StdinQueued, state.StdinTaken
	close(p.started)
	l.mu.Lock()
	_, exists := l.procs[p.handle]
	ended, why := l.ended, l.err
	if !exists && !ended {
		l.procs[p.handle] = p
		l.lastHandle = max(l.lastHandle, p.handle)
	}
	l.mu.Unlock()
	switch {
	case ended:
		return nil, supervisorGone(why)
	case exists:
		return nil, schemas.Errorf(schemas.CodeConflict, "process %s is already resumed", state.ID)
	}
	if err := l.send(&wire.Resume{Handle: p.handle, Stdout: p.received[0], Stderr: p.received[1]}); err != nil {
		l.remove(p)
		return nil, err
	}
	return p, nil
}

// add registers a process under a new handle.
func (l *Link) add(p *Process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox's supervisor is gone (%v): %w", l.err, sandbox.ErrEnded)
	}
	l.lastHandle++
	p.handle = l.lastHandle
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

// newSignal returns the number of a signal and the channel for its result.
func (l *Link) newSignal() (seq uint32, result <-chan wire.SignalResult) {
	c := make(chan wire.SignalResult, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastSignal++
	l.signals[l.lastSignal] = c
	return l.lastSignal, c
}

func (l *Link) signaled(seq uint32, result wire.SignalResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.signals[seq]; c != nil {
		delete(l.signals, seq)
		c <- result
	}
}

// listed delivers the answer to the oldest List.
func (l *Link) listed(m *wire.Listed) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lists) == 0 {
		return wire.ErrOrder
	}
	l.lists[0] <- m
	l.lists = l.lists[1:]
	return nil
}
