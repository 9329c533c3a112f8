package run

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Resume prepares to go on with a process that an earlier incarnation started and that a sandbox still holds, or to let the
// sandbox forget it. A process that goes on counts as running from here on; then does the rest. Errors: unavailable.
func (rs *Runs) Resume(ctx context.Context, t *session.Thread, sb sandbox.Attached, h sandbox.ProcessState) (then func(), err error) {
	discard := func() { rs.discard(sb, h) }
	last, err := rs.cfg.Records.Last(ctx, t.Tenant, t.ID, h.ID)
	f := finding{unknown: errors.Is(err, schemas.ErrNotFound)}
	if err != nil && !f.unknown {
		return nil, err
	}
	if f.unknown {
		return discard, nil
	}
	f.ended, f.foreign = last.Type.Terminal(), last.Source != rs.publisher.Worker || epochOf(last) >= t.Session.Epoch
	answered := last.Type == schemas.TypeProcessExited && !f.foreign
	if f.ended && !answered {
		return discard, nil
	}
	accepted, err := rs.cfg.History.Accepted(ctx, t.Tenant, t.ID, h.ID)
	if err != nil && (!answered || !errors.Is(err, schemas.ErrNotFound)) {
		return nil, err
	}
	var record schemas.Accepted
	f.unknown = err != nil || accepted.Decode(&record) != nil
	f.partial = !h.Ended && !h.StdinClosed && h.Stdin < record.StdinBytes
	var result schemas.Result
	switch {
	case resume(f):
		run := rs.newResumed(t, accepted, &record, last, h)
		rs.mu.Lock()
		rs.runs[key(t.Tenant, run.process)] = run
		rs.mu.Unlock()
		t.Enter(run)
		if run.turn != nil {
			run.turn.LineUp()
		}
		return func() {
			rs.runToEnd(run, func(result *schemas.Result) error {
				return rs.resumeProcess(run, sb, last.Type == schemas.TypeProcessStarted, result)
			})
		}, nil
	case answered && !f.unknown && record.Op == schemas.OpMessage && last.Decode(&result) == nil:
		run := rs.newResumed(t, accepted, &record, last, h)
		t.Hold()
		run.turn.LineUp()
		return func() {
			defer t.Release()
			defer run.turn.Done()
			rs.finishAnswer(run, &result, discard)
		}, nil
	default:
		return discard, nil
	}
}

// finishAnswer does what follows the answer to a message whose end is on record: the worker ended before it had done that.
func (rs *Runs) finishAnswer(run *Run, result *schemas.Result, discard func()) {
	_, err := rs.replay(run, run.turn.Reset, func(stream schemas.Stream, _ int64, p []byte) { run.turn.Write(stream, p) })
	if err != nil {
		return // this worker ends too
	}
	run.turn.Finish(result)
	discard()
}

// newResumed is the run of a process that an earlier incarnation started.
func (rs *Runs) newResumed(t *session.Thread, accepted *schemas.Event, a *schemas.Accepted, last *schemas.Event, h sandbox.ProcessState) *Run {
	run := &Run{
		thread: t, process: h.ID, user: a.User, fingerprint: a.Fingerprint, epoch: a.Epoch, args: a.Args, argsTruncated: a.ArgsTruncated,
		exec: &schemas.Exec{
			Command: a.Command, Args: a.Args, TimeoutMS: a.TimeoutMS, Retry: a.Retry, OutputLimit: a.OutputLimit, StdinOpen: a.StdinOpen,
		},
		accepted: accepted, firstSeq: accepted.Seq, seq: last.Seq, attempt: 1,
	}
	if a.Op == schemas.OpMessage {
		run.turn = rs.cfg.NewTurn(t, run.process, a.User, nil)
	}
	if a.StdinOpen || a.StdinBytes > 0 {
		run.input = &input{pieces: make(chan piece, InputDepth), given: true, written: max(0, h.Stdin-a.StdinBytes), eof: h.StdinClosed}
	}
	return run
}

// resumeProcess goes on with a process's output from where the log ends, and follows it to its end. An error is lost. When started
// is not on record yet, it is recorded now.
func (rs *Runs) resumeProcess(run *Run, sb sandbox.Attached, started bool, result *schemas.Result) error {
	proc, out, after, err := rs.catchUp(run, sb)
	if err != nil {
		return schemas.Errorf(schemas.CodeLost, "process %s ran on while its worker was away, and then its sandbox ended: %w", run.process, err)
	}
	run.started(proc)
	recorded := recording(func(context.Context) (uint64, error) { return run.seq, nil })
	if !started {
		recorded = rs.recordStart(run, proc, sb.ID())
	}
	run.log(rs.publisher.Log.Info()).Int64("stdout_stored", out.stdout.read).Int64("stderr_stored", out.stderr.read).Msg("process_resumed")
	return rs.follow(run, proc, recorded, out, after, result)
}

// catchUp rebuilds from the log what this worker would know had it run the process from the start, and takes the process over from
// there.
func (rs *Runs) catchUp(run *Run, sb sandbox.Attached) (sandbox.Process, *capture, *schemas.LogRange, error) {
	h, err := rs.held(run, sb)
	if err != nil {
		return nil, nil, nil, err
	}
	var out *capture
	after, err := rs.replay(run, func() {
		out = rs.newCapture(run)
		if run.turn != nil {
			run.turn.Reset()
		}
	}, func(stream schemas.Stream, offset int64, p []byte) {
		s, acked := out.of(stream), h.Stdout
		if stream == schemas.Stderr {
			acked = h.Stderr
		}
		// The sandbox can fill this gap: the output after it comes again.
		if offset > s.read && s.read >= acked {
			return
		}
		if offset == s.read && run.turn != nil {
			run.turn.Write(stream, p)
		}
		s.add(offset, p)
	})
	if err != nil {
		return nil, nil, nil, err
	}
	// Output that neither the log nor the sandbox has was dropped when it could not be stored, or is too old.
	const reason = "neither the log nor the sandbox has it"
	rs.reportGap(run, schemas.Stdout, out.stdout.read, h.Stdout, reason)
	rs.reportGap(run, schemas.Stderr, out.stderr.read, h.Stderr, reason)
	out.stdout.stored.Store(out.stdout.read)
	out.stderr.stored.Store(out.stderr.read)
	proc, err := sb.Resume(rs.background.Context(), run.process, out.stdout.read, out.stderr.read)
	return proc, out, after, err
}

// replay reads the output that is in the log, and calls reset before each try. It tries until the worker ends: what comes next
// depends on the log.
func (rs *Runs) replay(run *Run, reset func(), fn func(schemas.Stream, int64, []byte)) (after *schemas.LogRange, err error) {
	ctx := rs.background.Context()
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0)), ctx)
	err = backoff.Retry(func() (err error) {
		reset()
		after, err = rs.cfg.Replay(ctx, run.ref(), fn)
		return err
	}, policy)
	return after, err
}

func (rs *Runs) held(run *Run, sb sandbox.Attached) (sandbox.ProcessState, error) {
	list, err := sb.Processes(rs.background.Context())
	if err != nil {
		return sandbox.ProcessState{}, err
	}
	for _, h := range list {
		if h.ID == run.process {
			return h, nil
		}
	}
	return sandbox.ProcessState{}, schemas.Errorf(schemas.CodeNotFound, "its sandbox does not have it")
}

// discard ends a process that belongs to no run, and lets its sandbox forget it.
func (rs *Runs) discard(sb sandbox.Attached, h sandbox.ProcessState) {
	ctx := rs.background.Context()
	proc, err := sb.Resume(ctx, h.ID, h.Stdout, h.Stderr)
	if err != nil {
		return // the sandbox has ended
	}
	// Kill and Ack fail only when the sandbox has ended, which Read reports.
	_ = proc.Kill(0)
	for {
		o, err := proc.Read(ctx)
		if err != nil {
			break
		}
		_ = proc.Ack(o.Stream, o.Offset+int64(len(o.Data)))
	}
	if _, err := proc.Wait(ctx); err == nil {
		_ = proc.Release() // it fails only when the sandbox has ended
	}
}
