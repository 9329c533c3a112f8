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
	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Request is a command to run. Only Thread and Command are required.
type Request struct {
	// Thread is the conversation whose sandbox runs it; see [schemas.ValidID].
	Thread string
	// Key is the idempotency key: a command with the same key runs once and returns the same result. Default: a new key.
	Key string
	// Provider is the kind of sandbox. Default: the worker's choice.
	Provider string
	// Image is the image of the sandbox, for a provider that uses images. A thread keeps its first image. Default: the worker's
	// choice.
	Image string
	// Template is the template of the session that the thread gets when it has none. Default: the worker's.
	Template string
	// Session is the id of the session that must run it. When that session has ended, the command is rejected with
	// session_expired. Default: the session that the thread has or gets.
	Session string
	// Command is the program, and Args its arguments. No shell is involved.
	Command string
	Args    []string
	// Env is added to the environment of the sandbox.
	Env map[string]string
	// Dir is the working directory, relative to the workspace. Default: the workspace.
	Dir string
	// Timeout ends the whole process tree. Default: none.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL at the timeout. Default: SIGKILL at once.
	Grace time.Duration
	// Stdin is copied to the process until it or the process ends. A Read that blocks then is not waited for. Default: the process
	// has an empty standard input.
	Stdin io.Reader
	// OutputLimit is the most bytes of each stream in the result. Default [schemas.DefaultOutputLimit]; -1 keeps none.
	OutputLimit int64
	// Retry says whether a process that was lost with its worker may run again. Default: never.
	Retry schemas.Retry
}

func (r *Request) command() *schemas.Command {
	e := &schemas.Exec{
		Command: r.Command, Args: r.Args, Env: r.Env, Cwd: r.Dir,
		TimeoutMS: ceilMillis(r.Timeout), GraceMS: ceilMillis(r.Grace), StdinOpen: r.Stdin != nil, Retry: r.Retry,
		OutputLimit: outputLimit(r.OutputLimit),
	}
	return &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: r.Thread, Key: orNewKey(r.Key), Provider: r.Provider, Image: r.Image,
		Template: r.Template, Session: r.Session, Exec: e,
	}
}

func orNewKey(key string) string {
	if key == "" {
		return ulid.Make().String()
	}
	return key
}

// outputLimit is the option in the form of a command, where a missing value is the default.
func outputLimit(option int64) *int64 {
	switch {
	case option < 0:
		return new(int64)
	case option > 0:
		return &option
	default:
		return nil
	}
}

// ceilMillis rounds up, so that a short timeout does not become none. A negative one stays negative, and is rejected.
func ceilMillis(d time.Duration) int64 {
	if d < 0 {
		return min(d.Milliseconds(), -1)
	}
	return (d + time.Millisecond - 1).Milliseconds()
}

// abandonTimeout bounds the kill of a process whose caller has canceled.
const abandonTimeout = 5 * time.Second

// Exec runs a command and returns its result. When ctx ends first, Exec kills the process and returns ctx's error. Errors:
// invalid_argument, conflict (the key belongs to another command), too_large, pool_exhausted, unavailable, permission_denied, lost.
func (c *Client) Exec(ctx context.Context, req Request) (*schemas.Result, error) {
	return c.exec(ctx, req.command(), req.Stdin)
}

// exec sends a command, waits for its end, and kills its process when ctx ends first.
func (c *Client) exec(ctx context.Context, cmd *schemas.Command, stdin io.Reader) (*schemas.Result, error) {
	x, err := c.newExecution(cmd)
	if err != nil {
		return nil, err
	}
	result, err := x.run(ctx, stdin)
	x.Close()
	if err != nil {
		if ctx.Err() != nil { // also without an answer: the command may run later
			kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
			defer cancel()
			_ = x.Kill(kill, 0) // it may have ended, or never have started
		}
		return nil, err
	}
	if err := c.complete(ctx, x.call.Ref(), result, x.limit); err != nil {
		return nil, err
	}
	return result, resultError(result)
}

// resultError returns the error of a result that Exec reports as an error: the process never ran for a reason of Sluice's, or it was
// lost. A program that was not found is a result.
func resultError(r *schemas.Result) error {
	switch {
	case r.Error == nil:
		return nil
	case r.Reason == schemas.ReasonLost:
		return r.Error
	case r.Reason == schemas.ReasonRejected && r.ExitCode != schemas.ExitNotFound && r.ExitCode != schemas.ExitNotExecutable:
		return r.Error
	default:
		return nil
	}
}

// complete reads from the log the output that the record had no room for.
func (c *Client) complete(ctx context.Context, ref schemas.ProcessRef, r *schemas.Result, limit int64) error {
	if r.Log == nil {
		return nil
	}
	for _, s := range []schemas.Stream{schemas.Stdout, schemas.Stderr} {
		recorded, err := r.Output(s)
		if err != nil {
			return err
		}
		total := r.StdoutBytes
		if s == schemas.Stderr {
			total = r.StderrBytes
		}
		want := min(limit, total)
		if int64(len(recorded)) >= want {
			continue
		}
		full := make([]byte, 0, want)
		_, err = c.caller.ReadLog(ctx, ref, s, r.Log.FirstSeq, r.Log.LastSeq, func(k schemas.Chunk) error {
			if k.Offset != int64(len(full)) {
				return io.EOF // the log has a hole: keep what there is
			}
			full = append(full, k.Data[:min(int64(len(k.Data)), want-int64(len(full)))]...)
			if int64(len(full)) == want {
				return io.EOF
			}
			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(full) > len(recorded) {
			r.SetOutput(s, full, total)
		}
	}
	return nil
}

// ExecEvent is output of a command, or its end.
type ExecEvent struct {
	// Chunk is a piece of output; nil in the last event. Logs continues after its Seq.
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
	queued   atomic.Bool

	stop  context.CancelFunc // ends the copy of standard input
	input sync.WaitGroup
}

// ExecStream sends a command and returns once it is accepted or queued. [Execution.Events] yields its output. The process continues
// when ctx ends; Kill ends it. Errors are those of Exec.
func (c *Client) ExecStream(ctx context.Context, req Request) (*Execution, error) {
	return c.stream(ctx, req.command(), req.Stdin)
}

func (c *Client) stream(ctx context.Context, cmd *schemas.Command, stdin io.Reader) (*Execution, error) {
	x, err := c.newExecution(cmd)
	if err != nil {
		return nil, err
	}
	if x.follower, err = c.caller.FollowLog(x.call.Ref(), 0); err == nil {
		err = x.send(ctx, stdin)
	}
	if err != nil {
		x.Close()
		return nil, err
	}
	return x, nil
}

func (c *Client) newExecution(cmd *schemas.Command) (*Execution, error) {
	call, err := c.caller.NewCall(c.tenant, cmd)
	if err != nil {
		return nil, err
	}
	return &Execution{client: c, call: call, limit: cmd.Limit(), stop: func() {}}, nil
}

// run sends the command and waits for its end.
func (x *Execution) run(ctx context.Context, stdin io.Reader) (*schemas.Result, error) {
	if err := x.send(ctx, stdin); err != nil {
		return nil, err
	}
	return x.end(ctx)
}

// send sends the command and starts to copy its standard input.
func (x *Execution) send(ctx context.Context, stdin io.Reader) error {
	if err := x.call.Send(ctx); err != nil {
		return err
	}
	x.queued.Store(x.call.Queued())
	if stdin != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		x.stop = cancel
		x.input.Go(func() { x.copyInput(ctx, stdin) })
	}
	return nil
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

// Close stops receiving events and copying standard input. The process continues.
func (x *Execution) Close() {
	x.stop()
	x.input.Wait()
	if x.follower != nil {
		x.follower.Close()
	}
	x.call.Close()
}

// end waits for the end of the process.
func (x *Execution) end(ctx context.Context) (*schemas.Result, error) {
	for {
		ev, err := x.call.Next(ctx)
		if err != nil {
			return nil, err
		}
		x.queued.Store(false)
		if ev.Type.Terminal() {
			var r schemas.Result
			if err := ev.Decode(&r); err != nil {
				return nil, err
			}
			return &r, nil
		}
	}
}

// Events yields the output in order and without holes, and the result last. It ends early with an error: ctx's, unavailable, or the
// result's own as in Exec. Call it once; after an early exit, continue with Logs after the last chunk's Seq.
func (x *Execution) Events(ctx context.Context) iter.Seq2[ExecEvent, error] {
	return func(yield func(ExecEvent, error) bool) {
		if err := x.yieldAll(ctx, func(e ExecEvent) bool { return yield(e, nil) }); err != nil && !errors.Is(err, errBreak) {
			yield(ExecEvent{}, err)
		}
	}
}

// errBreak reports that the caller has left the loop.
var errBreak = errors.New("loop left")

// liveDepth is how many chunks may wait between the connection and the caller.
const liveDepth = 16

func (x *Execution) yieldAll(ctx context.Context, yield func(ExecEvent) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	followCtx, stopFollowing := context.WithCancel(ctx)
	chunks := make(chan schemas.Chunk, liveDepth)
	followed := make(chan error, 1)
	go func() {
		followed <- x.followUntil(followCtx, chunks)
		close(chunks)
	}()
	type outcome struct {
		result *schemas.Result
		err    error
	}
	ended := make(chan outcome, 1)
	endDone := make(chan struct{})
	go func() {
		defer close(endDone)
		r, err := x.end(ctx)
		ended <- outcome{r, err}
	}()
	defer func() {
		cancel()
		stopFollowing()
		for range chunks { // until the goroutine that fills it ends
		}
		<-endDone
	}()
	verified := false
	emit := func(k schemas.Chunk) error {
		if !verified {
			if err := x.verifyOutput(ctx); err != nil {
				return err
			}
			verified = true
		}
		if !yield(ExecEvent{Chunk: &k}) {
			return errBreak
		}
		return nil
	}
	for {
		select {
		case k, ok := <-chunks:
			if !ok {
				return <-followed
			}
			if err := emit(k); err != nil {
				return err
			}
		case e := <-ended:
			if e.err != nil {
				return e.err
			}
			// Only one goroutine may use the follower: drain its chunks first, then read the rest here.
			stopFollowing()
			for k := range chunks {
				if err := emit(k); err != nil {
					return err
				}
			}
			if err := x.follower.Finish(ctx, e.result, emit); err != nil {
				return err
			}
			if err := resultError(e.result); err != nil {
				return err
			}
			if !yield(ExecEvent{Result: e.result}) {
				return errBreak
			}
			return nil
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
