package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// finish records the end of a run and sends it to every caller that waits. err is why the process was not seen to run. A caller
// never waits for a disk to become free: it gets the true result, with the error that the result is not on record yet.
func (rs *Runs) finish(run *Run, result *schemas.Result, err error) {
	typ := schemas.TypeProcessExited
	if err != nil {
		typ = fillError(result, err, run.isStarted())
	} else if result.Reason == schemas.ReasonLost {
		typ = schemas.TypeProcessLost
		result.Error = schemas.Errorf(schemas.CodeLost, "the sandbox of thread %s ended without reporting how process %s did: send it with a new key", run.thread.ID, run.process)
	}
	run.input.refuse(run)
	if result.Error != nil && result.Error.Code == schemas.CodeLimitExceeded {
		rs.publisher.Publish(rs.background.Context(), rs.recorder.event(run, schemas.TypeLimitExceeded, result.Error))
	}
	run.mu.Lock()
	run.left = make(chan struct{})
	run.mu.Unlock()
	ev := rs.recorder.event(run, typ, result)
	why := err
	if rs.publisher.Fenced() {
		why = nil // the end of the worker, not of the process
	}
	end, err := rs.recorder.recordEnd(run, ev, result)
	switch {
	case end != nil:
	case rs.publisher.Fenced():
		rs.cfg.Handover.add(run, why)
	default:
		rs.owe(run)
	}
	run.recorded = end != nil
	if run.turn == nil {
		run.release()
	}
	if end != nil || !rs.publisher.Fenced() { // else the outcome is not known here
		rs.recorder.logOutcome(run, result, err)
	}
	// The room is free before a caller gets the end, so that the caller's next command finds it.
	rs.leave(run)
	run.reportEnd(result)
	if rs.publisher.Fenced() {
		end = nil // another worker records the end, and answers
	} else if end == nil && !errors.Is(err, schemas.ErrConflict) {
		end = rs.recorder.unrecorded(ev, result, err)
	}
	rs.recorder.notify(run, end, true)
}

// owe leaves the end of a run to the worker that recovers this one: it has to look at the process again.
func (rs *Runs) owe(run *Run) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.recoverFrom = min(rs.recoverFrom, run.firstSeq)
}

// fillError fills in why a process was not seen to run to its end, and returns the type of its last record. One that has started is
// never rejected: a rejected command may run again.
func fillError(result *schemas.Result, err error, started bool) schemas.EventType {
	const sigKill = 9 // on every system
	start, ofCommand := errors.AsType[*sandbox.StartError](err)
	switch {
	case errors.Is(err, errKilledEarly):
		result.Reason, result.Signal, result.ExitCode = schemas.ReasonKilled, sigKill, schemas.ExitSignalBase+sigKill
		return schemas.TypeProcessExited
	case errors.Is(err, schemas.ErrLost):
		result.Reason, result.ExitCode, result.Error = schemas.ReasonLost, schemas.ExitSluiceFailed, schemas.AsError(err)
		return schemas.TypeProcessLost
	case started:
		result.Reason, result.ExitCode = schemas.ReasonLost, schemas.ExitSluiceFailed
		result.Error = schemas.Errorf(schemas.CodeLost, "process %s started, and its end is unknown: %w", result.Process, err)
		return schemas.TypeProcessLost
	case ofCommand:
		result.Reason, result.ExitCode = schemas.ReasonRejected, start.Code
		result.Error = schemas.Errorf(schemas.CodeInvalidArgument, "%s", start.Message)
	default:
		result.Reason, result.ExitCode, result.Error = schemas.ReasonRejected, schemas.ExitSluiceFailed, schemas.AsError(err)
	}
	return schemas.TypeProcessRejected
}

// swelling is how much output may grow as JSON: a control character takes six bytes.
const swelling = 6

// setOutput sets the beginning of a stream's output, cut until its JSON has at most [schemas.MaxRecordOutput] bytes.
func setOutput(r *schemas.Result, stream schemas.Stream, kept []byte, total int64) {
	for {
		r.SetOutput(stream, kept, total)
		text := r.Stdout
		if stream == schemas.Stderr {
			text = r.Stderr
		}
		if len(text) <= schemas.MaxRecordOutput/swelling {
			return // most results need no encoding here
		}
		if body, err := json.Marshal(text); err != nil || len(body) <= schemas.MaxRecordOutput+len(`""`) {
			return
		}
		kept = kept[:len(kept)*3/4]
	}
}

// release lets the sandbox forget a process whose end is on record.
func (run *Run) release() {
	if run.recorded && run.proc != nil {
		_ = run.proc.Release() // when its sandbox is gone there is nothing to release
	}
}

// RecordLost records a process as lost: it was accepted, and the worker that ran it is gone. last is its newest record. Errors:
// conflict when another worker was first, unavailable.
func (rs *Runs) RecordLost(ctx context.Context, last *schemas.Event) (*schemas.Event, error) {
	return rs.recorder.recordLost(ctx, last)
}
