package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/oklog/ulid/v2"

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
	// Stdin is copied to the process until it or the process ends, also when its worker is killed and comes back. Only [io.EOF] ends it. When
	// it cannot arrive, also because a Read fails with another error, the process is killed, and Exec returns why. A Read that blocks when the
	// process ends is not waited for. Default: the process has an empty standard input.
	Stdin io.Reader
	// StdinOpen leaves the standard input of a process in the background open, for [Process.WriteStdin]. Default: it is empty.
	StdinOpen bool
	// StdinFrom is the id of another process of the thread, which was accepted before and whose Retry is not safe: its standard output is
	// the standard input. It goes through the log, so that it survives a kill of the worker. When a part is missing there, such as of a
	// process that printed more than the log holds, the process is killed, and its result has the error. It excludes Stdin and StdinOpen.
	StdinFrom string
	// AutoCleanup leaves the process out of lists once it has ended; see [Client.CleanProcesses].
	AutoCleanup bool
	// Main ends the session with the process, as completed and with its exit code; see [WithMain].
	Main bool
	// OnExit is called once with the end of a process in the background, as [Process.Wait] returns it, until [Process.Close]. Default: not
	// called.
	OnExit func(*schemas.Result, error)
	// Terminal gives the process a terminal of this size as its standard input, output and error; its output is stdout. The input stays
	// open when there is no Stdin: Input and [Client.AttachProcess] write to it. Name the type of the terminal as TERM in Env. Default
	// nil: pipes.
	Terminal *schemas.TerminalSize
	// OutputLimit is the most bytes of each stream in the result. Default [schemas.DefaultOutputLimit]; -1 keeps none.
	OutputLimit int64
	// Encoding is how the result of Exec and ExecStream holds output. Default: text, or base64 of what is not UTF-8.
	Encoding Encoding
	// OnOutput is called with each piece of output, in order, while Exec waits. OnComplete is called with the result, and OnError with the
	// error, before Exec returns the same. They change nothing else. Only Exec calls them. Default: not called.
	OnOutput   func(schemas.Chunk)
	OnComplete func(*schemas.Result)
	OnError    func(error)
	// Retry says whether a process that was lost with its worker may run again. Default: never.
	Retry schemas.Retry
	// Origin has labels and a trace context, which all events of the command repeat. Default: none.
	schemas.Origin
}

func (r *Request) command() *schemas.Command {
	e := &schemas.Exec{
		Command: r.Command, Args: r.Args, Env: r.Env, Cwd: r.Dir,
		TimeoutMS: ceilMillis(r.Timeout), GraceMS: ceilMillis(r.Grace), StdinOpen: r.Stdin != nil || r.StdinOpen, Retry: r.Retry,
		OutputLimit: outputLimit(r.OutputLimit), AutoCleanup: r.AutoCleanup, StdinFrom: r.StdinFrom, Main: r.Main,
	}
	if size := r.Terminal; size != nil {
		e.TTY, e.StdinOpen, e.Rows, e.Cols = true, true, size.Rows, size.Cols
	}
	return &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: r.Thread, Key: cmp.Or(r.Key, ulid.Make().String()),
		Provider: r.Provider, Image: r.Image, Template: r.Template, Session: r.Session, Exec: e, Origin: r.Origin,
	}
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

// abandonTimeout bounds the cancel of a command whose caller has canceled, and the kill of a process that lacks its input.
const abandonTimeout = 5 * time.Second

// Exec runs a command and returns its result. When ctx ends first, Exec cancels the command: it does not run if it is still queued, else
// its process is killed. The error is canceled then, also one of ctx's; any other code says that the command may still run. Errors:
// invalid_argument, conflict (the key belongs to another command), too_large, pool_exhausted, unavailable, permission_denied, lost,
// canceled.
func (c *Client) Exec(ctx context.Context, req Request) (*schemas.Result, error) {
	r, err := c.exec(ctx, req.command(), &req)
	req.report(r, err)
	return r, err
}

// report calls OnComplete or OnError.
func (r *Request) report(result *schemas.Result, err error) {
	if err != nil && r.OnError != nil {
		r.OnError(err)
	}
	if err == nil && r.OnComplete != nil {
		r.OnComplete(result)
	}
}

// exec sends a command, waits for its end, and cancels it when ctx ends first.
func (c *Client) exec(ctx context.Context, cmd *schemas.Command, req *Request) (*schemas.Result, error) {
	x, err := newExecution(c, cmd, req.Encoding)
	if err != nil {
		return nil, err
	}
	if req.OnOutput != nil {
		x.follower, err = c.caller.FollowLog(x.call.Ref(), 0)
	}
	if err == nil {
		err = x.send(ctx, req.Stdin)
	}
	var result *schemas.Result
	switch {
	case err != nil:
	case req.OnOutput != nil:
		result, err = x.run(ctx, func(e ExecEvent) bool {
			if e.Chunk != nil {
				req.OnOutput(*e.Chunk)
			}
			return true
		})
	default:
		result, err = x.end(ctx, func(ExecEvent) {})
	}
	x.Close()
	if err != nil {
		if ctx.Err() != nil { // also without an answer: the command may be queued
			return nil, x.abandon(ctx)
		}
		return nil, err
	}
	if req.OnOutput == nil {
		if err := complete(ctx, c.caller, x.call.Ref(), result, x.limit); err != nil {
			return nil, err
		}
		if err := req.Encoding.apply(result); err != nil {
			return nil, err
		}
	}
	return result, x.resultError(result)
}

// abandon cancels the command of a caller whose context has ended, and returns the error for the caller.
func (x *Execution) abandon(ctx context.Context) error {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	switch err := x.Cancel(try); {
	case err == nil:
		return schemas.Errorf(schemas.CodeCanceled, "process %s was canceled: %w", x.Process(), ctx.Err())
	case errors.Is(err, schemas.ErrConflict):
		return err
	default:
		return schemas.Errorf(schemas.CodeOf(err), "process %s may still run, for its cancel may not be stored (%s): %w", x.Process(), err.Error(), ctx.Err())
	}
}

// resultOf decodes the result in the last event of a process.
func resultOf(ev *schemas.Event) (*schemas.Result, error) {
	r := new(schemas.Result)
	return r, ev.Decode(r)
}

// resultError is that of the result, or why the process lacked its input and was killed.
func (x *Execution) resultError(r *schemas.Result) error {
	input := x.inputFailed.Load()
	if input != nil && (r.Reason == schemas.ReasonKilled || r.Error != nil && r.Error.Code == schemas.CodeCanceled) {
		return input
	}
	return resultError(r)
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
