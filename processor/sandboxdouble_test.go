package processor_test

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// double is a sandbox for states that a test cannot bring a real one into.
type double struct {
	id    string
	done  chan struct{}
	once  sync.Once
	start startFunc
}

// startFunc starts a command in a double.
type startFunc func(ctx context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error)

func newDouble(start startFunc) *double {
	return &double{id: "double", done: make(chan struct{}), start: start}
}

func (d *double) ID() string            { return d.id }
func (d *double) Home() string          { return "/workspace" }
func (d *double) Done() <-chan struct{} { return d.done }
func (d *double) end()                  { d.once.Do(func() { close(d.done) }) }

func (d *double) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	return d.start(ctx, d, cmd)
}

func (d *double) Terminate(context.Context, time.Duration) error {
	d.end()
	return nil
}

// doubleProcess is a process that the test ends, or its sandbox.
type doubleProcess struct {
	id   string
	sb   *double
	out  chan sandbox.Output
	exit chan sandbox.Exit

	mu     sync.Mutex
	killed chan struct{}
	signal func() error // Signal's result; nil for success
	mortal bool         // it ends when it is killed
	acked  map[schemas.Stream]int64
}

func newDoubleProcess(id string, sb *double) *doubleProcess {
	return &doubleProcess{
		id: id, sb: sb, out: make(chan sandbox.Output, 16), exit: make(chan sandbox.Exit, 1), killed: make(chan struct{}),
		mortal: true, acked: make(map[schemas.Stream]int64),
	}
}

func (p *doubleProcess) ID() string        { return p.id }
func (p *doubleProcess) PID() int          { return 4711 }
func (p *doubleProcess) CloseStdin() error { return nil }
func (p *doubleProcess) Release() error    { return nil }

// Resize does nothing: it has no terminal.
func (p *doubleProcess) Resize(schemas.TerminalSize) error { return nil }

// Read returns the output that the test sent.
func (p *doubleProcess) Read(ctx context.Context) (sandbox.Output, error) {
	select {
	case o := <-p.out:
		return o, nil
	default:
	}
	select {
	case o := <-p.out:
		return o, nil
	case e := <-p.exit:
		p.exit <- e
		return sandbox.Output{}, io.EOF
	case <-p.sb.done:
		return sandbox.Output{}, io.EOF
	case <-ctx.Done():
		return sandbox.Output{}, ctx.Err()
	}
}

func (p *doubleProcess) Ack(s schemas.Stream, offset int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked[s] = max(p.acked[s], offset)
	return nil
}

// WriteStdin blocks until the sandbox ends.
func (p *doubleProcess) WriteStdin(ctx context.Context, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	select {
	case <-p.sb.done:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *doubleProcess) Signal(sandbox.Signal) error {
	if p.signal != nil {
		return p.signal()
	}
	return nil
}

// Kill ends it if it is mortal.
func (p *doubleProcess) Kill(time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.killed:
		return nil
	default:
	}
	close(p.killed)
	if p.mortal {
		p.exit <- sandbox.Exit{Reason: schemas.ReasonKilled, Code: 137, Signal: 9, Stdout: p.acked[schemas.Stdout], Stderr: p.acked[schemas.Stderr]}
	}
	return nil
}

// Wait returns the test's exit, or the loss of the sandbox.
func (p *doubleProcess) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case e := <-p.exit:
		p.exit <- e
		return e, nil
	case <-p.sb.done:
		return sandbox.Exit{Reason: schemas.ReasonLost, Code: -1}, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// useDouble makes a double the only sandbox of the worker. start starts its commands.
func (r *rig) useDouble(start startFunc) {
	d := newDouble(start)
	r.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) { return d, nil }
}
