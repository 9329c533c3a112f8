package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// Request says what to run, and where. Only Thread and Command are required.
type Request struct {
	// Thread is the conversation in whose sandbox it runs; see [schemas.ValidID].
	Thread string
	// Key makes it idempotent: the same key runs once and answers the same. Default: a new one.
	Key string
	// Provider asks for a kind of sandbox. Default: the worker's choice.
	Provider string
	// Image is what the sandbox's root is made from, where the provider takes one. The thread keeps its first. Default: the
	// worker's choice.
	Image string
	// Template is the recipe of the session that the thread gets where it has none. Default: the worker's.
	Template string
	// Session is the id of the session it is meant for: where that has ended, it is refused with session_expired. Default:
	// whichever the thread has, or gets.
	Session string
	// Command is the program, and Args its arguments. No shell is involved.
	Command string
	Args    []string
	// Env is added to the sandbox's environment.
	Env map[string]string
	// Dir is the working directory, relative to the workspace. Default: the workspace.
	Dir string
	// Timeout ends the whole tree. Default: none.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL at the timeout. Default: SIGKILL at once.
	Grace time.Duration
	// Stdin is read and passed on until it ends or the process does. A Read that is under way then is not waited for.
	// Default: the process reads nothing.
	Stdin io.Reader
	// OutputLimit is how many bytes of each stream the result keeps. Default [schemas.DefaultOutputLimit]; -1 keeps none.
	OutputLimit int64
	// Retry says whether a process that was lost with its worker may be run again. Default: never.
	Retry schemas.Retry
}

func (r *Request) command() *schemas.Command {
	key := r.Key
	if key == "" {
		key = ulid.Make().String()
	}
	e := &schemas.Exec{
		Command: r.Command, Args: r.Args, Env: r.Env, Cwd: r.Dir,
		TimeoutMS: ceilMillis(r.Timeout), GraceMS: ceilMillis(r.Grace), StdinOpen: r.Stdin != nil, Retry: r.Retry,
	}
	e.OutputLimit = outputLimit(r.OutputLimit)
	return &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: r.Thread, Key: key, Provider: r.Provider, Image: r.Image,
		Template: r.Template, Session: r.Session, Exec: e,
	}
}

// outputLimit is an option on the wire, where a missing one is the default.
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

// ceilMillis rounds up, so that the shortest timeout does not become none; a negative one stays so, to be refused.
func ceilMillis(d time.Duration) int64 {
	if d < 0 {
		return min(d.Milliseconds(), -1)
	}
	return (d + time.Millisecond - 1).Milliseconds()
}

// abandonPatience bounds the kill of a process whose caller has gone.
const abandonPatience = 5 * time.Second

// Exec runs a command and returns how it ended. When ctx ends first, the process is killed and ctx's error returned.
// Errors: invalid_argument, conflict (the key belongs to another command), too_large, pool_exhausted, unavailable,
// permission_denied, lost.
func (c *Client) Exec(ctx context.Context, req Request) (*schemas.Result, error) {
	return c.finish(ctx, req.command(), req.Stdin)
}

// finish sends a command, waits for its end, and kills what it began when the caller does not wait that long.
func (c *Client) finish(ctx context.Context, cmd *schemas.Command, stdin io.Reader) (*schemas.Result, error) {
	result, x, err := c.run(ctx, cmd, stdin)
	if err != nil {
		if ctx.Err() != nil { // also while nobody had answered yet: it may run all the same
			kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonPatience)
			defer cancel()
			// It may have ended, or never have begun.
			_ = c.conn.Kill(kill, c.ref(cmd.Thread, schemas.ProcessID(c.tenant, cmd.Thread, cmd.Key)), schemas.KillRequest{})
		}
		return nil, err
	}
	if err := c.complete(ctx, x.ref(), result, x.limit); err != nil {
		return nil, err
	}
	return result, resultError(result)
}

// run sends a command and waits for its end.
func (c *Client) run(ctx context.Context, cmd *schemas.Command, stdin io.Reader) (*schemas.Result, *Execution, error) {
	x, err := c.start(ctx, cmd, stdin, false)
	if err != nil {
		return nil, nil, err
	}
	defer x.Close()
	result, err := x.end(ctx)
	return result, x, err
}

// resultError is the error of a result that is none: the process never ran for a reason of Sluice's, or nobody knows how it
// ended. A command that was not found is a result.
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

// complete fills a result up from the log where its record had no room for all that was asked for.
func (c *Client) complete(ctx context.Context, ref schemas.ProcessRef, r *schemas.Result, limit int64) error {
	if r.Log == nil {
		return nil
	}
	for _, s := range []schemas.Stream{schemas.Stdout, schemas.Stderr} {
		kept, err := r.Output(s)
		if err != nil {
			return err
		}
		total := r.StdoutBytes
		if s == schemas.Stderr {
			total = r.StderrBytes
		}
		want := min(limit, total)
		if int64(len(kept)) >= want {
			continue
		}
		full := make([]byte, 0, want)
		_, err = c.conn.ReadLog(ctx, c.conn.Subjects.Log(ref.Tenant, ref.Thread, ref.Process, s), r.Log.FirstSeq, r.Log.LastSeq, func(k schemas.Chunk) error {
			if k.Offset != int64(len(full)) {
				return io.EOF // the rest is no longer in the log: what is kept stays
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
		if len(full) > len(kept) {
			r.SetOutput(s, full, total)
		}
	}
	return nil
}

// ExecEvent is one thing that happens while a command runs: output, or its end.
type ExecEvent struct {
	// Chunk is a piece of output; nil at the end. Its Seq is where Logs would go on.
	Chunk *schemas.Chunk
	// Result is set in the last event.
	Result *schemas.Result
}

// Execution is a command that was sent. One goroutine reads its events; the other methods may be called from any.
type Execution struct {
	client   *Client
	call     *events.Call
	follower *events.Follower
	limit    int64
	queued   atomic.Bool

	stop context.CancelFunc // ends the feeding of input
	fed  sync.WaitGroup
}

// ExecStream sends a command and returns once it is accepted, or durable. Its output comes by [Execution.Events]. The process
// goes on, whatever becomes of ctx or the caller: Kill ends it. Errors are those of Exec.
func (c *Client) ExecStream(ctx context.Context, req Request) (*Execution, error) {
	return c.start(ctx, req.command(), req.Stdin, true)
}

func (c *Client) start(ctx context.Context, cmd *schemas.Command, stdin io.Reader, follow bool) (*Execution, error) {
	if err := cmd.Validate(); err != nil {
		return nil, err
	}
	x := &Execution{client: c, limit: cmd.Limit(), stop: func() {}}
	if follow {
		ref := c.ref(cmd.Thread, schemas.ProcessID(c.tenant, cmd.Thread, cmd.Key))
		var err error
		if x.follower, err = c.conn.Follow(ref, 0); err != nil {
			return nil, err
		}
	}
	call, err := c.conn.Send(ctx, c.tenant, cmd)
	if err != nil {
		x.Close()
		return nil, err
	}
	x.call = call
	x.queued.Store(call.Queued())
	if stdin != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		x.stop = cancel
		x.fed.Go(func() { x.feed(ctx, stdin) })
	}
	return x, nil
}

// Process is the process's id.
func (x *Execution) Process() string { return x.call.Process() }

// Queued says that no worker has accepted the command yet.
func (x *Execution) Queued() bool { return x.queued.Load() }

func (x *Execution) ref() schemas.ProcessRef { return x.call.Ref() }

// Signal sends a signal, such as "SIGINT", to the process's group. Errors: not_found when it has ended, invalid_argument.
func (x *Execution) Signal(ctx context.Context, signal string) error {
	return x.client.conn.Signal(ctx, x.ref(), schemas.SignalRequest{Signal: signal})
}

// Kill ends the process's whole tree: SIGTERM, the grace, SIGKILL. Errors: not_found when it has ended.
func (x *Execution) Kill(ctx context.Context, grace time.Duration) error {
	return x.client.conn.Kill(ctx, x.ref(), schemas.KillRequest{GraceMS: ceilMillis(grace)})
}

// Close stops listening, and passing on input. The process goes on.
func (x *Execution) Close() {
	x.stop()
	x.fed.Wait()
	if x.follower != nil {
		x.follower.Close()
	}
	if x.call != nil {
		x.call.Close()
	}
}

// end waits for the process's end.
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

// Events yields the output in order and without holes, and the result last. It ends early with an error: ctx's, unavailable,
// or the result's own as with Exec. It is for one loop: who leaves it early goes on with Logs, after the last chunk's Seq.
func (x *Execution) Events(ctx context.Context) iter.Seq2[ExecEvent, error] {
	return func(yield func(ExecEvent, error) bool) {
		if err := x.stream(ctx, func(e ExecEvent) bool { return yield(e, nil) }); err != nil && !errors.Is(err, errLeft) {
			yield(ExecEvent{}, err)
		}
	}
}

// errLeft says that the caller left the iteration.
var errLeft = errors.New("left")

// liveDepth is how many chunks may wait between the connection and the caller.
const liveDepth = 16

func (x *Execution) stream(ctx context.Context, yield func(ExecEvent) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	followCtx, stopFollowing := context.WithCancel(ctx)
	chunks := make(chan schemas.Chunk, liveDepth)
	followed := make(chan error, 1)
	go func() {
		followed <- x.followUntil(followCtx, chunks)
		close(chunks)
	}()
	type ending struct {
		result *schemas.Result
		err    error
	}
	ended := make(chan ending, 1)
	endGone := make(chan struct{})
	go func() {
		defer close(endGone)
		r, err := x.end(ctx)
		ended <- ending{r, err}
	}()
	defer func() {
		cancel()
		stopFollowing()
		for range chunks { // until the goroutine that fills it has gone
		}
		<-endGone
	}()
	emit := func(k schemas.Chunk) error {
		if !yield(ExecEvent{Chunk: &k}) {
			return errLeft
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
			// The follower is one goroutine's: what it holds is taken first, and the rest read here.
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
				return errLeft
			}
			return nil
		}
	}
}

// followUntil passes live chunks on until its context ends, losing none that it took from the follower.
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
