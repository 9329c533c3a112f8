package run

import (
	"context"
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Resume prepares to go on with a process that an earlier incarnation started and that a sandbox still holds, or to let the
// sandbox forget it. A process that goes on counts as running from here on; then does the rest. Errors: unavailable.
func (rs *Runs) Resume(ctx context.Context, t *session.Thread, sb sandbox.Attached, h sandbox.ProcessState) (then func(), err error) {
	discard := func() { rs.follower.discard(sb, h) }
	if rs.cfg.Temporary && !h.Ended {
		discard = func() {} // it is the next worker's to end
	}
	if !strings.HasPrefix(h.ID, "p") {
		return discard, nil // of a hook or of a file operation, whose caller is gone
	}
	last, err := rs.cfg.Records.Last(ctx, t.Tenant, t.ID, h.ID)
	f := finding{unknown: errors.Is(err, schemas.ErrNotFound)}
	if err != nil && !f.unknown {
		return nil, err
	}
	if f.unknown {
		if h.Ended || rs.cfg.Temporary {
			return discard, nil
		}
		// Its records have expired. They begin anew with its end, which fails if this read was of a replica that lags behind.
		expired := rs.recorder.event(&Run{thread: t, process: h.ID}, schemas.TypeProcessStarted, schemas.Started{Epoch: t.Session.Epoch})
		if _, err := rs.RecordLost(ctx, expired); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "record the end of process %s, whose records have expired: %w", h.ID, err)
		}
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
	var owed []byte
	if !h.Ended && !h.StdinClosed && h.Stdin < record.StdinBytes {
		owed = rs.cfg.Handover.input(accepted)
		f.partial = owed == nil
	}
	var result schemas.Result
	switch {
	case resume(f):
		run := rs.newResumed(t, accepted, &record, last, h)
		run.owe(owed, h.Stdin)
		rs.hold(run)
		return func() {
			defer close(run.ended)
			rs.runToEnd(run, func(result *schemas.Result) error {
				return rs.follower.resume(run, sb, last.Type == schemas.TypeProcessStarted, result)
			})
		}, nil
	case answered && !f.unknown && record.Op == schemas.OpMessage && last.Decode(&result) == nil:
		run := rs.newResumed(t, accepted, &record, last, h)
		t.Hold()
		run.turn.LineUp()
		return func() {
			defer t.Release()
			defer run.turn.Done()
			rs.follower.finishAnswer(run, &result, discard)
		}, nil
	case answered && !f.unknown && record.Main && last.Decode(&result) == nil:
		return func() {
			discard()
			rs.sessions.Complete(t, &result)
		}, nil
	default:
		return discard, nil
	}
}

// hold adds a run that an earlier incarnation accepted.
func (rs *Runs) hold(run *Run) {
	rs.mu.Lock()
	rs.put(run)
	rs.mu.Unlock()
	run.thread.Enter(run)
	run.thread.KeepPlace()
	if run.turn != nil {
		run.turn.LineUp()
	}
}

// newResumed is the run of a process that an earlier incarnation started.
func (rs *Runs) newResumed(t *session.Thread, accepted *schemas.Event, a *schemas.Accepted, last *schemas.Event, h sandbox.ProcessState) *Run {
	run := &Run{
		thread: t, process: h.ID, user: a.User, fingerprint: a.Fingerprint, epoch: a.Epoch, args: a.Args, argsTruncated: a.ArgsTruncated,
		exec: &schemas.Exec{
			Command: a.Command, Args: a.Args, TimeoutMS: a.TimeoutMS, Retry: a.Retry, OutputLimit: a.OutputLimit, StdinOpen: a.StdinOpen, AutoCleanup: a.AutoCleanup,
			StdinFrom: a.StdinFrom, TTY: a.TTY, Main: a.Main,
		},
		origin: accepted.Origin, accepted: accepted, entered: accepted.Time, firstSeq: accepted.Seq, seq: last.Seq, attempt: 1, ended: make(chan struct{}),
	}
	if last.Type == schemas.TypeProcessStarted {
		run.begun = last.Time
	}
	if a.Op == schemas.OpMessage {
		run.turn = rs.newTurn(run)
	}
	if a.StdinOpen || a.StdinFrom != "" || a.StdinBytes > 0 {
		run.input = &input{pieces: make(chan piece, InputDepth), written: writtenBefore(a, h), eof: h.StdinClosed}
	}
	return run
}

// owe lets the run give its process the rest of its own input, of which the process has got these bytes.
func (run *Run) owe(whole []byte, got int64) {
	if whole != nil {
		run.exec.Stdin, run.input.own = whole, whole[got:]
	}
}

// writtenBefore is how far the writers of a process's input were. The sandbox counts the input of all of them together, so only the one
// of a process without a terminal is known: a terminal has several.
func writtenBefore(a *schemas.Accepted, h sandbox.ProcessState) writers {
	before := max(0, h.Stdin-a.StdinBytes)
	if a.TTY {
		return writers{adopt: true, before: before}
	}
	return writers{list: []writer{{written: before}}, before: before}
}
