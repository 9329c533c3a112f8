package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// ExecEvent is output of a command, its end, what it waits for, or that it waits no more.
type ExecEvent struct {
	// Accepted reports that a worker has accepted a command that was queued.
	Accepted bool
	// Waiting is what no live worker has, for a command that waits in the queue; nil in all other events.
	Waiting *schemas.Error
	// Chunk is a piece of output; nil in all other events. Logs continues after its Seq.
	Chunk *schemas.Chunk
	// Result is set in the last event.
	Result *schemas.Result
}

// Execution is a command that was sent. One goroutine reads its events; the other methods are safe for concurrent use.
type Execution struct {
	client   *Client
	call     *events.Call
	follower *events.Follower
	limit    int64
	encoding Encoding
	queued   atomic.Bool

	writer      string             // of its standard input; empty for the only one
	stop        context.CancelFunc // ends the copy of standard input
	input       sync.WaitGroup
	inputFailed atomic.Pointer[schemas.Error]
	admitted    func() // ends the admission
}

// ExecStream sends a command and returns once it is accepted or queued. [Execution.Events] yields its output. The process continues
// when ctx ends; Kill ends it. Errors are those of Exec.
func (c *Client) ExecStream(ctx context.Context, req Request) (*Execution, error) {
	return c.stream(ctx, req.command(), &req)
}

func (c *Client) stream(ctx context.Context, cmd *schemas.Command, req *Request) (*Execution, error) {
	x, err := newExecution(c, cmd, req.Encoding)
	if err != nil {
		return nil, err
	}
	if x.follower, err = c.caller.FollowLog(x.call.Ref(), 0); err == nil {
		err = x.send(ctx, req.Stdin)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func newExecution(c *Client, cmd *schemas.Command, encoding Encoding) (*Execution, error) {
	if err := encoding.check(); err != nil {
		return nil, err
	}
	call, err := c.caller.NewCall(c.tenant, cmd)
	if err != nil {
		return nil, err
	}
	x := &Execution{client: c, call: call, limit: cmd.Limit(), encoding: encoding, stop: func() {}, admitted: func() {}}
	if cmd.Exec != nil && cmd.Exec.TTY {
		x.writer = newWriter()
	}
	return x, nil
}

// send sends the command and starts to copy its standard input.
func (x *Execution) send(ctx context.Context, stdin io.Reader) error {
	done, err := admit(ctx, x.client.admission, x.call.Ref().Thread, x.call.Process())
	if err != nil {
		return err
	}
	x.admitted = done
	if err := x.call.Send(ctx); err != nil {
		return err
	}
	if why := x.call.Refused(); errors.Is(why, schemas.ErrSessionExpired) {
		return why // before any input is read
	}
	x.queued.Store(x.call.Queued())
	if stdin != nil {
		x.Input(ctx, stdin)
	}
	return nil
}

// Input copies a reader to the standard input of a process that has a terminal, as [Request.Stdin] is copied. Call it at most once,
// before Close, and not together with Stdin: a program that must first know that its process runs calls it later.
func (x *Execution) Input(ctx context.Context, from io.Reader) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	x.stop = cancel
	x.input.Go(func() { x.feed(ctx, from) })
}

// Resize changes the size of the process's terminal. Errors: those of Signal; invalid_argument for an invalid size, and for a process
// without a terminal.
func (x *Execution) Resize(ctx context.Context, size schemas.TerminalSize) error {
	if err := x.call.Verify(ctx); err != nil {
		return err
	}
	return x.client.caller.Resize(ctx, x.call.Ref(), size)
}

// Process returns the id of the process.
func (x *Execution) Process() string { return x.call.Process() }

// Queued reports that no worker has accepted the command yet.
func (x *Execution) Queued() bool { return x.queued.Load() }

// Signal sends a signal, such as "SIGINT", to the process group. Errors: not_found when the process has ended, or no worker has
// accepted it; conflict when the key belongs to another command; invalid_argument.
func (x *Execution) Signal(ctx context.Context, signal string) error {
	if err := x.call.Verify(ctx); err != nil {
		return err
	}
	return x.client.caller.Signal(ctx, x.call.Ref(), schemas.SignalRequest{Signal: signal})
}

// Kill ends the whole process tree: SIGTERM, the grace, SIGKILL. Errors: those of Signal without invalid_argument.
func (x *Execution) Kill(ctx context.Context, grace time.Duration) error {
	if err := x.call.Verify(ctx); err != nil {
		return err
	}
	return x.client.caller.Kill(ctx, x.call.Ref(), schemas.KillRequest{GraceMS: ceilMillis(grace)})
}

// Cancel ends the command wherever it is. When it returns nil, a command that waits in the queue does not run, also when no worker lives
// now; its result is the error canceled. A process that runs is killed at once. Errors: conflict when the key belongs to another
// command; unavailable, deadline_exceeded and limit_exceeded when the outcome is unknown: the command may still run.
func (x *Execution) Cancel(ctx context.Context) error { return x.call.Cancel(ctx) }

// Close stops receiving events and copying standard input. The process continues.
func (x *Execution) Close() {
	x.stop()
	x.input.Wait()
	if x.follower != nil {
		x.follower.Close()
	}
	x.call.Close()
	x.admitted()
}

// end waits for the end of the process. Until a worker has accepted the command, it calls notify with what no live worker has, and then
// with the acceptance.
func (x *Execution) end(ctx context.Context, notify func(ExecEvent)) (*schemas.Result, error) {
	for {
		ev, err := x.call.Next(ctx)
		if err != nil {
			return nil, err
		}
		if ev.Type == schemas.TypeCommandWaiting {
			var why schemas.Error
			if err := ev.Decode(&why); err != nil {
				return nil, err
			}
			notify(ExecEvent{Waiting: &why})
			continue
		}
		queued := x.queued.Swap(false)
		if ev.Type.Terminal() {
			return resultOf(ev)
		}
		if queued {
			notify(ExecEvent{Accepted: true})
		}
	}
}

// Events yields the output in order and without holes, and the result last. It ends early with an error: ctx's, unavailable, or the
// result's own as in Exec. Call it once; after an early exit, continue with Logs after the last chunk's Seq.
func (x *Execution) Events(ctx context.Context) iter.Seq2[ExecEvent, error] {
	return func(yield func(ExecEvent, error) bool) {
		r, err := x.run(ctx, func(e ExecEvent) bool { return yield(e, nil) })
		if err == nil {
			err = x.resultError(r)
		}
		switch {
		case err == nil:
			yield(ExecEvent{Result: r}, nil)
		case !errors.Is(err, errBreak):
			yield(ExecEvent{}, err)
		}
	}
}

// errBreak reports that the caller has left the loop.
var errBreak = errors.New("loop left")

// liveDepth is how many chunks may wait between the connection and the caller.
const liveDepth = 16

// run yields the output, and returns the result, which is complete.
func (x *Execution) run(ctx context.Context, yield func(ExecEvent) bool) (*schemas.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	followCtx, stopFollowing := context.WithCancel(ctx)
	chunks, ended, notes := make(chan schemas.Chunk, liveDepth), make(chan struct{}), make(chan ExecEvent)
	var result *schemas.Result
	var followErr, endErr error // set before chunks and ended are closed
	go func() {
		defer close(chunks)
		followErr = x.followUntil(followCtx, chunks)
	}()
	go func() {
		defer close(ended)
		result, endErr = x.end(ctx, func(e ExecEvent) {
			select {
			case notes <- e:
			case <-ctx.Done():
			}
		})
	}()
	defer func() {
		cancel()
		stopFollowing()
		for range chunks { // until the goroutine that fills it ends
		}
		<-ended
	}()
	verified, composed := false, newComposer(x.limit)
	emit := func(k schemas.Chunk) error {
		if !verified {
			if err := x.verifyOutput(ctx); err != nil {
				return err
			}
			verified = true
		}
		composed.add(&k)
		if !yield(ExecEvent{Chunk: &k}) {
			return errBreak
		}
		return nil
	}
	for {
		select {
		case e := <-notes:
			if !yield(e) {
				return nil, errBreak
			}
		case k, ok := <-chunks:
			if !ok {
				return nil, followErr
			}
			if err := emit(k); err != nil {
				return nil, err
			}
		case <-ended:
			if endErr != nil {
				return nil, endErr
			}
			// Only one goroutine may use the follower: drain its chunks first, then read the rest here.
			stopFollowing()
			for k := range chunks {
				if err := emit(k); err != nil {
					return nil, err
				}
			}
			if err := x.follower.Finish(ctx, result, emit); err != nil {
				return nil, err
			}
			if err := composed.finish(result, schemas.Streams()...); err != nil {
				return nil, err
			}
			return result, x.encoding.apply(result)
		}
	}
}

// verifyTimeout is how long output waits for the record of its process, which is stored before it: a replica may lag.
const verifyTimeout = 5 * time.Second

// verifyOutput waits until the output is known to be this command's. Errors: conflict when it is another's, those of Verify.
func (x *Execution) verifyOutput(ctx context.Context) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxElapsedTime(verifyTimeout))
	return backoff.Retry(func() error {
		err := x.call.Verify(ctx)
		if errors.Is(err, schemas.ErrConflict) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(policy, ctx))
}

// followUntil sends live chunks until ctx ends. It drops no chunk that it took from the follower.
func (x *Execution) followUntil(ctx context.Context, to chan<- schemas.Chunk) error {
	for {
		err := x.follower.Next(ctx, func(k schemas.Chunk) error {
			to <- k
			return nil
		})
		if err != nil {
			return err
		}
	}
}
