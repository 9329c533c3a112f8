package run

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// runToEnd takes a run to its recorded end. execute runs its process, or goes on with it, and fills in how it ended.
func (rs *Runs) runToEnd(run *Run, execute func(*schemas.Result) error) {
	if run.turn != nil {
		run.thread.Hold() // the session is in use until the last hook has ended
		defer run.thread.Release()
		defer run.turn.Done()
	}
	result := &schemas.Result{
		Process: run.process, Thread: run.thread.ID, Command: run.exec.Command, Args: run.args, ArgsTruncated: run.argsTruncated,
		Timestamp: time.Now().UTC(), Fingerprint: run.fingerprint, Worker: rs.publisher.Worker, Epoch: run.epoch,
		AutoCleanup: run.exec.AutoCleanup,
	}
	rs.finish(run, result, execute(result))
	rs.endOfMain(run, result)
	if run.turn != nil {
		// The answer to a message is stored once, and a message that may run again has none yet.
		if !result.RunsAgain() {
			run.turn.Finish(result)
		}
		run.release() // until here the next incarnation finds the process, and runs the hooks
	}
}

// endOfMain ends the session of a main process whose end is on record, unless it never ran for a reason that is not its own.
func (rs *Runs) endOfMain(run *Run, result *schemas.Result) {
	own := result.Reason != schemas.ReasonRejected || result.ExitCode == schemas.ExitNotFound || result.ExitCode == schemas.ExitNotExecutable
	if run.exec.Main && run.recorded && own && !rs.publisher.Fenced() {
		rs.sessions.Complete(run.thread, result)
	}
}

// awaitTurn waits until a message may be answered. Errors: errKilledEarly, those of the turn.
func (rs *Runs) awaitTurn(run *Run) error {
	ctx, cancel := context.WithCancel(rs.background.Context())
	defer cancel()
	if !run.queue(cancel) {
		return errKilledEarly
	}
	err := run.turn.Await(ctx)
	if run.isKilled() || ctx.Err() != nil {
		return errKilledEarly
	}
	return session.StartError(err)
}

// errKilledEarly reports that a process was killed before it started.
var errKilledEarly = errors.New("killed before it was started")

// execute starts the process, stores its output and fills in how it ended. With an error, the process was not seen to run.
func (rs *Runs) execute(run *Run, result *schemas.Result) error {
	if run.why != nil {
		return run.why
	}
	if run.turn != nil {
		if err := rs.awaitTurn(run); err != nil {
			return err
		}
	}
	if err := rs.follower.checkSource(run); err != nil {
		return err
	}
	open, err := rs.follower.open(run)
	if err != nil {
		return session.StartError(err)
	}
	proc, sb, err := rs.start(run)
	if err != nil {
		return err
	}
	run.started(proc, sb)
	return rs.follower.follow(run, proc, rs.recorder.recordStart(run, proc, sb.ID()), rs.follower.newCapture(run), open, result)
}

// start starts the process in the thread's sandbox. Errors: errKilledEarly; *sandbox.StartError when the command is at fault; lost
// when the process may have run; any other when it did not.
func (rs *Runs) start(run *Run) (sandbox.Process, sandbox.Sandbox, error) {
	// The start of the sandbox has a deadline of its own, from when it begins; the command's timeout includes neither.
	waiting, cancel := context.WithCancel(rs.background.Context())
	defer cancel()
	if !run.starting(cancel) {
		return nil, nil, errKilledEarly
	}
	for again := run.exec.Retry == schemas.RetrySafe; ; {
		sb, err := rs.sessions.Sandbox(waiting, run.thread, run.origin)
		if run.isKilled() {
			return nil, nil, errKilledEarly
		}
		if err != nil {
			return nil, nil, session.StartError(err)
		}
		// The worker may have been frozen since the acceptance: another one may have reported the process as lost, and run it again.
		if err := rs.publisher.CheckLease(); err != nil {
			return nil, nil, err
		}
		ctx, done := context.WithTimeout(waiting, rs.cfg.Timeouts.Start)
		defer done()
		run.ask(sb.ID())
		proc, err := sb.Start(ctx, sandbox.Command{
			ID: run.process, Path: run.exec.Command, Args: run.exec.Args, Env: run.origin.Environ(run.exec.Env), Dir: run.exec.Cwd,
			Stdin: run.exec.HasStdin(), Terminal: run.exec.Terminal(),
			Timeout: time.Duration(run.exec.TimeoutMS) * time.Millisecond, Grace: time.Duration(run.exec.GraceMS) * time.Millisecond,
		})
		switch {
		case err == nil:
			return proc, sb, nil
		case errors.Is(err, sandbox.ErrEnded) && gone(ctx, sb, err, rs.cfg.Timeouts.Gone) && ctx.Err() == nil:
			run.ask("") // the sandbox had ended before it got the command: the next iteration creates another
		case ctx.Err() != nil && run.isKilled():
			return nil, nil, errKilledEarly
		case errors.Is(err, sandbox.ErrRefused), errors.Is(err, sandbox.ErrEnded), ctx.Err() == nil && !errors.Is(err, schemas.ErrUnavailable):
			run.ask("")
			return nil, nil, session.StartError(err)
		case gone(ctx, sb, err, rs.cfg.Timeouts.Gone) && ctx.Err() == nil && again && !rs.publisher.Fenced():
			again = false
		default:
			return nil, nil, schemas.Errorf(schemas.CodeLost,
				"the sandbox of process %s did not report whether the process started (%w): send it with a new key, or with retry \"safe\"", run.process, err)
		}
	}
}

// gone reports whether a start failed because its sandbox ended, now or within a time: the process may have started by then.
func gone(ctx context.Context, sb sandbox.Sandbox, err error, within time.Duration) bool {
	if !errors.Is(err, schemas.ErrUnavailable) {
		return false
	}
	wait := time.NewTimer(within)
	defer wait.Stop()
	select {
	case <-sb.Done():
		return true
	case <-ctx.Done():
		return true
	case <-wait.C:
		return false // the sandbox is there
	}
}
