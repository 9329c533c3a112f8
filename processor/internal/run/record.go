package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
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
		rs.publisher.Publish(rs.background.Context(), rs.event(run, schemas.TypeLimitExceeded, result.Error))
	}
	fit(result, rs.cfg.MaxRecord)
	ev := rs.event(run, typ, result)
	end, err := rs.recordEnd(run, ev, result)
	if end == nil && !rs.publisher.Fenced() {
		// The worker that recovers this one has to look at the process again.
		rs.mu.Lock()
		rs.recoverFrom = min(rs.recoverFrom, run.firstSeq)
		rs.mu.Unlock()
	}
	run.recorded = end != nil
	if run.turn == nil {
		run.release()
	}
	rs.logOutcome(run, result, err)
	// The room is free before a caller gets the end, so that the caller's next command finds it.
	rs.leave(run)
	if rs.publisher.Fenced() {
		end = nil // another worker records the end, and answers
	} else if end == nil && !errors.Is(err, schemas.ErrConflict) {
		end = rs.unrecorded(ev, result, err)
	}
	rs.notify(run, end, true)
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

// fit cuts the output in a result until its record has at most limit bytes. The size of output as a JSON string is known only
// after encoding: a control character takes six bytes.
func fit(r *schemas.Result, limit int64) {
	const (
		envelope = 4 << 10 // the event around the result, and the message's headers
		rest     = 64 << 10
		swelling = 6 // a control character becomes \u0000
	)
	if int64(len(r.Stdout)+len(r.Stderr)) <= (limit-envelope-rest)/swelling {
		return // it fits whatever it holds: most results need no encoding here
	}
	for {
		body, err := json.Marshal(r)
		if err != nil || int64(len(body)) <= limit-envelope {
			return
		}
		stream, kept, total := schemas.Stdout, r.Stdout, r.StdoutBytes
		if len(r.Stderr) > len(r.Stdout) {
			stream, kept, total = schemas.Stderr, r.Stderr, r.StderrBytes
		}
		p, err := r.Output(stream)
		if err != nil || len(kept) == 0 {
			return
		}
		r.SetOutput(stream, p[:len(p)*3/4], total)
	}
}

// release lets the sandbox forget a process whose end is on record.
func (run *Run) release() {
	if run.recorded && run.proc != nil {
		_ = run.proc.Release() // when its sandbox is gone there is nothing to release
	}
}

// recordEnd writes the last record, and returns the one that counts: another worker's when that one was first, nil when there is
// none. Errors: conflict when the process goes on under another worker, lost when this worker's lease is.
func (rs *Runs) recordEnd(run *Run, ev *schemas.Event, result *schemas.Result) (end *schemas.Event, err error) {
	ctx, begin, answered := rs.background.Context(), time.Now(), false
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(rs.cfg.Timeouts.Record)), ctx)
	err = backoff.Retry(func() error {
		if err := rs.publisher.CheckLease(); err != nil {
			return backoff.Permanent(err)
		}
		seq, err := rs.cfg.Records.Append(ctx, ev, run.seq)
		switch {
		case err == nil:
			rs.SawSeq(seq)
			end = ev
			return nil
		case errors.Is(err, schemas.ErrTooLarge):
			return backoff.Permanent(err)
		case errors.Is(err, schemas.ErrConflict):
			last, readErr := rs.last(run)
			switch {
			case readErr != nil:
				return err
			case last.Type.Terminal():
				end = last
				return backoff.Permanent(err)
			case last.Source == ev.Source && last.Seq > run.seq && epochOf(last) == result.Epoch:
				// This run's own record of the start, whose ack was lost.
				run.seq = last.Seq
			default:
				return backoff.Permanent(err)
			}
		case !answered && time.Since(begin) >= rs.cfg.Timeouts.Answer:
			answered = true
			rs.notify(run, rs.unrecorded(ev, result, err), false)
		}
		return err
	}, policy)
	return end, err
}

func (rs *Runs) last(run *Run) (*schemas.Event, error) {
	ctx, cancel := context.WithTimeout(rs.background.Context(), rs.cfg.Timeouts.Accept)
	defer cancel()
	return rs.cfg.Records.Last(ctx, run.thread.Tenant, run.thread.ID, run.process)
}

// epochOf is the session's epoch under which a process record was written, 0 when the record has none.
func epochOf(ev *schemas.Event) uint64 {
	var of struct {
		Epoch uint64 `json:"epoch"`
	}
	if ev.Decode(&of) != nil {
		return 0
	}
	return of.Epoch
}

// unrecorded is the answer for an end that could not be recorded.
func (rs *Runs) unrecorded(ev *schemas.Event, result *schemas.Result, cause error) *schemas.Event {
	r := *result
	r.Error = schemas.Errorf(schemas.CodeOf(cause), "the process ended as reported here, but its end is not on record: %w", cause)
	return rs.publisher.Event(ev.Type, ev.Tenant, ev.Thread, ev.Session, ev.Process, &r)
}

// notify sends an event to the callers that wait; after the last time no caller can attach. nil sends nothing: the record answers.
func (rs *Runs) notify(run *Run, ev *schemas.Event, last bool) {
	run.mu.Lock()
	inboxes := run.inboxes
	run.inboxes = nil
	run.notified = last
	if last && run.acceptTimer != nil {
		run.acceptTimer.Stop()
	}
	run.mu.Unlock()
	if ev == nil {
		return
	}
	for _, inbox := range inboxes {
		rs.publisher.Answer(inbox, ev)
	}
}

// maxLoggedCommand is how many bytes of a command's name a log line repeats.
const maxLoggedCommand = 200

// logOutcome writes the one log line of a command. Arguments, environment and output do not belong in logs.
func (rs *Runs) logOutcome(run *Run, result *schemas.Result, err error) {
	level := zerolog.InfoLevel
	if err != nil {
		level = zerolog.WarnLevel
	}
	name := "command_executed"
	if !result.Success {
		name = "command_failed"
	}
	line := run.log(rs.publisher.Log.WithLevel(level).Err(err))
	if result.Error != nil {
		line = line.Str("code", string(result.Error.Code))
	}
	line.Str("user", run.thread.Session.User).Str("command", result.Command[:min(len(result.Command), maxLoggedCommand)]).
		Int("exit_code", result.ExitCode).Str("reason", string(result.Reason)).Float64("duration_ms", result.DurationMS).Msg(name)
}

// RecordLost records a process as lost: it was accepted, and the worker that ran it is gone. last is its newest record. Errors:
// conflict when another worker was first, unavailable.
func (rs *Runs) RecordLost(ctx context.Context, last *schemas.Event) (*schemas.Event, error) {
	r := &schemas.Result{
		Process: last.Process, Thread: last.Thread, Reason: schemas.ReasonLost, ExitCode: schemas.ExitSluiceFailed,
		Timestamp: last.Time, Worker: last.Source,
		Error: schemas.Errorf(schemas.CodeLost, "worker %s went away while process %s ran: its end is unknown, and it was not run again; send it with a new key, or with retry \"safe\"", last.Source, last.Process),
	}
	if last.Type == schemas.TypeProcessAccepted {
		var a schemas.Accepted
		if err := last.Decode(&a); err != nil {
			return nil, err
		}
		r.Command, r.Args, r.ArgsTruncated, r.Fingerprint, r.Epoch = a.Command, a.Args, a.ArgsTruncated, a.Fingerprint, a.Epoch
	} else {
		var s schemas.Started
		if err := last.Decode(&s); err != nil {
			return nil, err
		}
		r.Command, r.Fingerprint, r.Epoch = s.Command, s.Fingerprint, s.Epoch
	}
	rng, stdout, stderr, err := rs.cfg.History.Stored(ctx, last.Tenant, last.Thread, last.Process)
	if err != nil {
		return nil, err
	}
	r.Log, r.StdoutBytes, r.StderrBytes = rng, stdout, stderr
	r.StdoutTruncated, r.StderrTruncated = stdout > 0, stderr > 0
	ev := rs.publisher.Event(schemas.TypeProcessLost, last.Tenant, last.Thread, last.Session, last.Process, r)
	seq, err := rs.cfg.Records.Append(ctx, ev, last.Seq)
	if err != nil {
		return nil, err
	}
	rs.SawSeq(seq)
	publisher.LogSession(rs.publisher.Log.Warn().Str("command_id", last.Process), last.Thread, last.Session).
		Str("dead_worker", last.Source).Str("reason", string(schemas.ReasonLost)).Msg("command_lost")
	return ev, nil
}
