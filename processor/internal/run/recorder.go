package run

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// recorder writes the records of runs that were accepted, and reports to their callers, the events and the log.
type recorder struct {
	records    Records
	history    History
	timeouts   work.Timeouts
	publisher  *publisher.Publisher
	background *work.Background
	sawSeq     func(seq uint64)
}

// event makes an event of the run's process.
func (rec *recorder) event(run *Run, typ schemas.EventType, data any) *schemas.Event {
	about := run.thread.About(run.origin)
	about.Process = run.process
	return rec.publisher.Event(typ, about, data)
}

// acceptDelay is the time after which a caller gets the acceptance of its command. A command that ends before needs no such
// answer: its end says as much.
const acceptDelay = 5 * time.Millisecond

// answerAccepted answers the caller of a command that does not end at once.
func (rec *recorder) answerAccepted(d *schemas.Delivery, run *Run) {
	switch {
	case d.Inbox == "":
	case d.Durable: // its caller has waited in the queue already
		rec.publisher.Answer(d.Inbox, run.accepted)
	default:
		inbox := d.Inbox
		timer := time.AfterFunc(acceptDelay, func() {
			run.mu.Lock()
			notified := run.notified
			run.mu.Unlock()
			if !notified {
				rec.publisher.Answer(inbox, run.accepted)
			}
		})
		run.mu.Lock()
		run.acceptTimer = timer
		run.mu.Unlock()
	}
}

// recording waits for a record that is on its way, and returns its sequence.
type recording func(context.Context) (uint64, error)

// recordStart records the start without waiting. When it cannot, the process still runs, and its end follows on accepted.
func (rec *recorder) recordStart(run *Run, proc sandbox.Process, sandboxID string) recording {
	err := rec.publisher.CheckLease()
	if err == nil {
		var wait recording
		wait, err = rec.records.AppendAsync(rec.event(run, schemas.TypeProcessStarted, schemas.Started{
			Fingerprint: run.fingerprint, Command: run.exec.Command, PID: proc.PID(), Sandbox: sandboxID, Epoch: run.epoch, Retry: run.exec.Retry,
		}), run.seq)
		if err == nil {
			return wait
		}
	}
	return func(context.Context) (uint64, error) { return 0, err }
}

// reportGap reports output that is missing from the log, if any is, in the result too.
func (rec *recorder) reportGap(run *Run, result *schemas.Result, stream schemas.Stream, from, to int64, reason string) {
	if from < to {
		gap := schemas.LogGap{Stream: stream, From: from, To: to, Reason: reason}
		result.Gaps = append(result.Gaps, gap)
		rec.publisher.Publish(rec.background.Context(), rec.event(run, schemas.TypeLogGap, gap))
	}
}

// recordEnd writes the last record, and returns the one that counts: another worker's when that one was first, nil when there is
// none. Errors: conflict when the process goes on under another worker, lost when this worker's lease is.
func (rec *recorder) recordEnd(run *Run, ev *schemas.Event, result *schemas.Result) (end *schemas.Event, err error) {
	ctx, begin, answered := rec.background.Context(), time.Now(), false
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(rec.timeouts.Record)), ctx)
	err = backoff.Retry(func() error {
		if err := rec.publisher.CheckLease(); err != nil {
			return backoff.Permanent(err)
		}
		seq, err := rec.records.Append(ctx, ev, run.seq)
		switch {
		case err == nil:
			rec.sawSeq(seq)
			end = ev
			return nil
		case errors.Is(err, schemas.ErrTooLarge):
			return backoff.Permanent(err)
		case errors.Is(err, schemas.ErrConflict):
			last, readErr := rec.last(run)
			switch {
			case errors.Is(readErr, schemas.ErrNotFound):
				run.seq = 0 // its earlier records have expired: its end begins them anew
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
		case !answered && time.Since(begin) >= rec.timeouts.Answer:
			answered = true
			rec.notify(run, rec.unrecorded(ev, result, err), false)
		}
		return err
	}, policy)
	return end, err
}

func (rec *recorder) last(run *Run) (*schemas.Event, error) {
	ctx, cancel := context.WithTimeout(rec.background.Context(), rec.timeouts.Accept)
	defer cancel()
	return rec.records.Last(ctx, run.thread.Tenant, run.thread.ID, run.process)
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
func (rec *recorder) unrecorded(ev *schemas.Event, result *schemas.Result, cause error) *schemas.Event {
	r := *result
	r.Error = schemas.Errorf(schemas.CodeOf(cause), "the process ended as reported here, but its end is not on record: %w", cause)
	return rec.publisher.Event(ev.Type, publisher.AboutOf(ev), &r)
}

// notify sends an event to the callers that wait; after the last time no caller can attach. nil sends nothing: the record answers.
func (rec *recorder) notify(run *Run, ev *schemas.Event, last bool) {
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
		rec.publisher.Answer(inbox, ev)
	}
}

// maxLoggedCommand is how many bytes of a command's name a log line repeats.
const maxLoggedCommand = 200

// logOutcome writes the one log line of a command. Arguments, environment and output do not belong in logs.
func (rec *recorder) logOutcome(run *Run, result *schemas.Result, err error) {
	level := zerolog.InfoLevel
	if err != nil {
		level = zerolog.WarnLevel
	}
	name := "command_executed"
	if !result.Success {
		name = "command_failed"
	}
	line := run.log(rec.publisher.Log.WithLevel(level).Err(err))
	if result.Error != nil {
		line = line.Str("code", string(result.Error.Code))
	}
	line.Str("user", cmp.Or(run.user, run.thread.Session.User)).Str("command", result.Command[:min(len(result.Command), maxLoggedCommand)]).
		Int("exit_code", result.ExitCode).Str("reason", string(result.Reason)).Float64("duration_ms", result.DurationMS).Msg(name)
}

// recordLost records a process as lost: it was accepted, and the worker that ran it is gone. last is its newest record. Errors:
// conflict when another worker was first, unavailable.
func (rec *recorder) recordLost(ctx context.Context, last *schemas.Event) (*schemas.Event, error) {
	return rec.recordAbsent(ctx, last, schemas.TypeProcessLost, schemas.Errorf(schemas.CodeLost,
		"worker %s went away while process %s ran: its end is unknown, and it was not run again; send it with a new key, or with retry \"safe\"", last.Source, last.Process))
}

// recordAbsent records the end of a process that has no run here: it is lost, or rejected. last is its newest record. Errors: those of
// recordLost.
func (rec *recorder) recordAbsent(ctx context.Context, last *schemas.Event, typ schemas.EventType, why *schemas.Error) (*schemas.Event, error) {
	r := &schemas.Result{
		Process: last.Process, Thread: last.Thread, Reason: schemas.ReasonLost, ExitCode: schemas.ExitSluiceFailed,
		Timestamp: last.Time, Worker: last.Source, Error: why,
	}
	if typ == schemas.TypeProcessRejected {
		r.Reason = schemas.ReasonRejected
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
	rng, stdout, stderr, err := rec.history.Stored(ctx, last.Tenant, last.Thread, last.Process)
	if err != nil {
		return nil, err
	}
	r.Log, r.StdoutBytes, r.StderrBytes = rng, stdout, stderr
	r.StdoutTruncated, r.StderrTruncated = stdout > 0, stderr > 0
	ev := rec.publisher.Event(typ, publisher.AboutOf(last), r)
	seq, err := rec.records.Append(ctx, ev, last.Seq)
	if err != nil {
		return nil, err
	}
	rec.sawSeq(seq)
	publisher.LogSession(rec.publisher.Log.Warn().Str("command_id", last.Process), last.Thread, last.Session).
		Str("dead_worker", last.Source).Str("reason", string(r.Reason)).Msg("command_" + string(r.Reason))
	return ev, nil
}
