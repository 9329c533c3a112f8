package client

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Process is a handle on a process that runs in the background, or has ended. Its methods are safe for concurrent use.
type Process struct {
	client *Client
	ref    schemas.ProcessRef
	queued bool
	stop   func() // ends the wait for OnExit

	input sync.Mutex
	sent  int64 // bytes of standard input that the process has; -1 when that is not known
}

// StartProcess starts a command in the background and returns once it is accepted or queued. The process goes on when ctx ends, and
// ends with its sandbox. Request.Key is an id of the caller's own choice: the same command is started once, and a later call returns the
// same process; see [Client.ProcessID]. Errors are those of Exec.
func (c *Client) StartProcess(ctx context.Context, req Request) (*Process, error) {
	if req.Stdin != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "a process in the background has no reader of its input: set StdinOpen, and use WriteStdin")
	}
	x, err := newExecution(c, req.command(), EncodingAuto)
	if err != nil {
		return nil, err
	}
	p := newProcess(c, x.call.Ref())
	if err = x.send(ctx, nil); err == nil && !x.Queued() {
		err = x.started(ctx)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	if p.queued = x.Queued(); req.OnExit == nil {
		x.Close()
		return p, nil
	}
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer x.Close()
		if r, err := p.Wait(watch); r != nil || watch.Err() == nil {
			req.OnExit(r, err)
		}
	}()
	p.stop = func() {
		cancel()
		<-ended
	}
	return p, nil
}

// started waits for the answer to a command. Errors: those of the command.
func (x *Execution) started(ctx context.Context) error {
	ev, err := x.call.Next(ctx)
	if err != nil || !ev.Type.Terminal() {
		return err
	}
	r, err := resultOf(ev)
	if err != nil {
		return err
	}
	return x.resultError(r)
}

func newProcess(c *Client, ref schemas.ProcessRef) *Process {
	return &Process{client: c, ref: ref, stop: func() {}, sent: -1}
}

// Process returns a handle on a process that is on record. thread may be empty: the process is then found by its id. Errors: not_found,
// invalid_argument, unavailable.
func (c *Client) Process(ctx context.Context, thread, process string) (*Process, error) {
	ref, _, err := c.locate(ctx, thread, process)
	if err != nil {
		return nil, err
	}
	return newProcess(c, ref), nil
}

// ID returns the id of the process.
func (p *Process) ID() string { return p.ref.Process }

// Queued reports that no worker had accepted the command when StartProcess returned.
func (p *Process) Queued() bool { return p.queued }

// Thread returns the thread of the process.
func (p *Process) Thread() string { return p.ref.Thread }

// Close ends the wait for OnExit. The process goes on. OnExit must not call it.
func (p *Process) Close() { p.stop() }

// Wait waits for the end of the process and returns its result. A process that is queued is waited for too. Errors: those of Exec,
// with the result if there is one.
func (p *Process) Wait(ctx context.Context) (*schemas.Result, error) {
	ended, stop := p.client.caller.WatchEnd(ctx, p.ref, func() {})
	defer stop()
	select {
	case r := <-ended:
		if err := complete(ctx, p.client.caller, p.ref, r, schemas.DefaultOutputLimit); err != nil {
			return nil, err
		}
		return r, resultError(r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Logs is [Client.Logs]; it sets the process and the thread of the query.
func (p *Process) Logs(ctx context.Context, q LogQuery, fn func(schemas.Chunk) error) error {
	q.Thread, q.Process = p.ref.Thread, p.ref.Process
	return p.client.Logs(ctx, q, fn)
}

// WriteStdin appends to the standard input of a process that was started with [Request.StdinOpen], and waits until the process has taken
// it. Its worker may be away meanwhile. Only one program may write at a time: what two send at once counts as a repetition. Errors: ctx's;
// not_found when the process has ended or reads no more input, invalid_argument when its standard input is not open.
func (p *Process) WriteStdin(ctx context.Context, data []byte) error {
	p.input.Lock()
	defer p.input.Unlock()
	for len(data) > 0 {
		n := min(len(data), events.MaxStdinPiece)
		if err := p.writeStdin(ctx, data[:n], false); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// CloseStdin ends the standard input. One that is closed, or whose process has ended, stays closed without an error. Errors are those of
// WriteStdin but for not_found.
func (p *Process) CloseStdin(ctx context.Context) error {
	p.input.Lock()
	defer p.input.Unlock()
	err := p.writeStdin(ctx, nil, true)
	if errors.Is(err, errInputClosed) {
		return nil
	}
	return err
}

// writeStdin sends one piece after those before. input is held.
func (p *Process) writeStdin(ctx context.Context, data []byte, end bool) error {
	to := stdin{caller: p.client.caller, ref: p.ref, hasEnded: p.hasEnded}
	if p.sent < 0 {
		sent, err := to.taken(ctx)
		if err != nil {
			return err
		}
		p.sent = sent
	}
	if err := to.write(ctx, schemas.StdinPiece{Offset: p.sent, Data: data, End: end}); err != nil {
		if errors.Is(err, errInputClosed) {
			return schemas.Errorf(schemas.CodeNotFound, "process %s: %w", p.ref.Process, err)
		}
		return err
	}
	p.sent += int64(len(data))
	return nil
}

// probeOffset is an offset that no process has come to.
const probeOffset = 1 << 62

// taken asks for the number of bytes that the process has taken: a piece after a gap is refused with it.
func (in *stdin) taken(ctx context.Context) (int64, error) {
	err := in.write(ctx, schemas.StdinPiece{Offset: probeOffset})
	if errors.Is(err, errInputClosed) {
		return 0, schemas.Errorf(schemas.CodeNotFound, "process %s: %w", in.ref.Process, err)
	}
	if text := schemas.AsError(err).Details[schemas.DetailWritten]; err != nil && text != "" {
		return strconv.ParseInt(text, 10, 64)
	}
	if err == nil {
		err = schemas.Errorf(schemas.CodeInternal, "process %s takes input after a gap", in.ref.Process)
	}
	return 0, err
}

// maxKills is how many processes are killed at a time.
const maxKills = 64

// KillAll kills every process of a thread that a worker has accepted, and returns how many. It does not wait for their ends. Queued commands
// are not killed; see Cancel. Errors: invalid_argument, unavailable; the others are killed all the same.
func (c *Client) KillAll(ctx context.Context, thread string, grace time.Duration) (killed int, err error) {
	if err := schemas.CheckID("thread", thread); err != nil {
		return 0, err
	}
	running, err := c.caller.Running(ctx, events.Filter{Tenant: c.tenant, Thread: thread}, false)
	if err != nil {
		return 0, err
	}
	errs, group := make([]error, len(running)), errgroup.Group{}
	group.SetLimit(maxKills)
	for i, p := range running {
		group.Go(func() error {
			ref := schemas.ProcessRef{Tenant: c.tenant, Thread: thread, Process: p.Process}
			errs[i] = c.caller.Kill(ctx, ref, schemas.KillRequest{GraceMS: ceilMillis(grace)})
			return nil
		})
	}
	_ = group.Wait() // its functions return none
	for i, e := range errs {
		switch {
		case e == nil:
			killed++
		case errors.Is(e, schemas.ErrNotFound) && newProcess(c, schemas.ProcessRef{Tenant: c.tenant, Thread: thread, Process: running[i].Process}).hasEnded(ctx):
			errs[i] = nil // it has ended meanwhile
		}
	}
	return killed, errors.Join(errs...)
}

// ProcessID returns the id of the process of a command with this key in a thread: a name of the caller's own choice finds its process.
func (c *Client) ProcessID(thread, key string) string {
	return schemas.ProcessID(c.tenant, thread, key)
}
