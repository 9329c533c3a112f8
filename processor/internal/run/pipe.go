package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// FollowLog passes the output of a process from its beginning to fn, as it is stored, until the process has ended, and returns its result.
// Errors: fn's, ctx's, unavailable, deadline_exceeded.
type FollowLog func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Chunk) error) (*schemas.Result, error)

// pipe gives a process the standard output of another one, as the log has it: it may begin again at any offset.
type pipe struct {
	run    *Run
	source schemas.ProcessRef
	follow FollowLog
	broken atomic.Pointer[schemas.Error] // why the process lacks a part of its input, and was killed
}

// source is the process whose output is the run's input.
func (run *Run) source() schemas.ProcessRef {
	return schemas.ProcessRef{Tenant: run.thread.Tenant, Thread: run.thread.ID, Process: run.exec.StdinFrom}
}

// checkSource looks at the process whose output is a run's input, if there is one. Errors: not_found; invalid_argument when its output may
// begin again.
func (f *follower) checkSource(run *Run) error {
	if run.exec.StdinFrom == "" {
		return nil
	}
	source := run.source()
	if source.Process == run.process {
		return schemas.Errorf(schemas.CodeInvalidArgument, "stdin_from: process %s cannot be its own input", run.process).With("path", "exec.stdin_from")
	}
	var record schemas.Accepted
	err := retryInput(f.background.Context(), func() error {
		accepted, err := f.history.Accepted(f.background.Context(), source.Tenant, source.Thread, source.Process)
		if err == nil {
			err = accepted.Decode(&record)
		}
		return err
	})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return schemas.Errorf(schemas.CodeNotFound, "stdin_from: thread %s has no process %s on record: start it first", source.Thread, source.Process).With("path", "exec.stdin_from")
	case err == nil && record.Retry == schemas.RetrySafe:
		return schemas.Errorf(schemas.CodeInvalidArgument, "stdin_from: process %s may run again, and its output begin anew: start it without retry safe", source.Process).With("path", "exec.stdin_from")
	default:
		return err
	}
}

// retryInput calls try until it succeeds, fails for good, or ctx ends.
func retryInput(ctx context.Context, try func() error) error {
	policy := backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		err := try()
		passes := errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)
		if err != nil && (!passes || errors.Is(err, errPipe)) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(policy, ctx))
}

// errPipe marks an error that no repetition mends: the process takes no input, or the log lacks a part of it.
var errPipe = errors.New("the input has ended")

// copy writes the input after the bytes that the process has, until the source or the process ends.
func (p *pipe) copy(ctx context.Context, proc sandbox.Process, written int64, closed bool) {
	if closed {
		return
	}
	var result *schemas.Result
	var refused error // by the process
	err := retryInput(ctx, func() (err error) {
		result, err = p.follow(ctx, p.source, func(k schemas.Chunk) error {
			if k.Stream != schemas.Stdout || k.End() <= written {
				return nil
			}
			if k.Offset > written {
				return missingInput(written, k.Offset)
			}
			fresh := k.Data[written-k.Offset:]
			if refused = proc.WriteStdin(ctx, fresh); refused != nil {
				return errors.Join(errPipe, refused)
			}
			written += int64(len(fresh))
			return nil
		})
		return err
	})
	if err == nil && result.StdoutBytes > written {
		err = missingInput(written, result.StdoutBytes)
	}
	switch {
	case err == nil:
		_ = proc.CloseStdin() // it fails only when the sandbox has ended
	case refused == nil && ctx.Err() == nil:
		p.fail(err)
	}
}

func missingInput(from, to int64) error {
	return fmt.Errorf("%w: %w", errPipe, schemas.Errorf(schemas.CodeUnavailable, "the log lacks bytes %d to %d of its standard output", from, to))
}

// fail kills the process: it would take what it has for all.
func (p *pipe) fail(err error) {
	p.broken.Store(schemas.Errorf(schemas.CodeOf(err), "pass the output of process %s to process %s: %w", p.source.Process, p.run.process, err))
	p.run.Kill(0)
}

// failure is why the process lacks a part of its input, nil when it does not.
func (in *input) failure() *schemas.Error {
	if in == nil || in.from == nil {
		return nil
	}
	return in.from.broken.Load()
}
