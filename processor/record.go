package processor

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/schemas"
)

// finish records the end and tells it to everybody who waits. A caller must never wait for a disk to become free: it gets the
// true result, with the error that it is not on record yet.
func (w *Worker) finish(r *run, typ schemas.EventType, result *schemas.Result) {
	fit(result, w.cfg.MaxRecord)
	ev := w.event(typ, r.thread.tenant, r.thread.thread, r.thread.session.ID, r.process, result)
	truth, err := w.recordEnd(r, ev, result)
	if truth == nil && !w.isFenced() {
		// Whoever recovers this worker has to look at the process again.
		w.mu.Lock()
		w.owed = min(w.owed, r.low)
		w.mu.Unlock()
	}
	r.recorded = truth != nil
	if r.talk == nil {
		r.release()
	}
	w.outcome(r, result, err)
	// Room is made before anybody is told, so that a caller who sends the next command finds it.
	w.end(r)
	if w.isFenced() {
		truth = nil // another worker's record tells
	} else if truth == nil && !errors.Is(err, schemas.ErrConflict) {
		truth = w.unrecorded(ev, result, err)
	}
	w.tell(r, truth, true)
}

// release has the sandbox forget a process whose end is on record.
func (r *run) release() {
	if r.recorded && r.proc != nil {
		_ = r.proc.Release() // where its sandbox is gone there is nothing to release
	}
}

// recordEnd writes the last record, and returns the one that counts: another one where somebody was first, nil where there is
// none. Errors: conflict where the process goes on under another worker, lost where this one's lease is.
func (w *Worker) recordEnd(r *run, ev *schemas.Event, result *schemas.Result) (truth *schemas.Event, err error) {
	begin := time.Now()
	answered := false
	policy := backoff.WithContext(backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(w.cfg.patience.record)), w.bg)
	err = backoff.Retry(func() error {
		if w.isFenced() {
			return backoff.Permanent(schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost", w.cfg.Worker))
		}
		seq, err := w.cfg.Records.Append(w.bg, ev, r.seq)
		switch {
		case err == nil:
			w.sawSeq(seq)
			truth = ev
			return nil
		case errors.Is(err, schemas.ErrTooLarge):
			return backoff.Permanent(err)
		case errors.Is(err, schemas.ErrConflict):
			last, readErr := w.last(r)
			switch {
			case readErr != nil:
				return err
			case last.Type.Terminal():
				truth = last
				return backoff.Permanent(err)
			case last.Source == ev.Source && last.Seq > r.seq && epochOf(last) == result.Epoch:
				// This run's own record of the start, whose ack got lost.
				r.seq = last.Seq
			default:
				return backoff.Permanent(err)
			}
		case !answered && time.Since(begin) >= w.cfg.patience.answer:
			answered = true
			w.tell(r, w.unrecorded(ev, result, err), false)
		}
		return err
	}, policy)
	return truth, err
}

func (w *Worker) last(r *run) (*schemas.Event, error) {
	ctx, cancel := context.WithTimeout(w.bg, w.cfg.patience.accept)
	defer cancel()
	return w.cfg.Records.Last(ctx, r.thread.tenant, r.thread.thread, r.process)
}

// epochOf is the session's epoch under which a process record was written, 0 where it does not tell.
func epochOf(ev *schemas.Event) uint64 {
	var mark struct {
		Epoch uint64 `json:"epoch"`
	}
	if ev.Decode(&mark) != nil {
		return 0
	}
	return mark.Epoch
}

// unrecorded is the answer for an end that could not be recorded.
func (w *Worker) unrecorded(ev *schemas.Event, result *schemas.Result, cause error) *schemas.Event {
	r := *result
	r.Error = schemas.Errorf(schemas.CodeOf(cause), "the process ended as told here, but that is not on record: %w", cause)
	return w.event(ev.Type, ev.Tenant, ev.Thread, ev.Session, ev.Process, &r)
}

// tell sends an event to those who wait; the last time nobody can be added any more. nil tells nothing: the record does.
func (w *Worker) tell(r *run, ev *schemas.Event, last bool) {
	r.mu.Lock()
	inboxes := r.inboxes
	r.inboxes = nil
	r.told = last
	if last && r.notice != nil {
		r.notice.Stop()
	}
	r.mu.Unlock()
	if ev == nil {
		return
	}
	for _, inbox := range inboxes {
		w.answer(inbox, ev)
	}
}

// maxLoggedCommand is how much of a command's name a log line repeats.
const maxLoggedCommand = 200

// outcome writes the one log line a command gets. Arguments, environment and output are not for logs.
func (w *Worker) outcome(r *run, result *schemas.Result, err error) {
	level := zerolog.InfoLevel
	if err != nil {
		level = zerolog.WarnLevel
	}
	name := "command_executed"
	if !result.Success {
		name = "command_failed"
	}
	command := result.Command
	if len(command) > maxLoggedCommand {
		command = command[:maxLoggedCommand]
	}
	code := func(e *zerolog.Event) {
		if result.Error != nil {
			e.Str("code", string(result.Error.Code))
		}
	}
	w.cfg.Log.WithLevel(level).Err(err).Func(code).Str("command_id", r.process).Str("user", r.thread.session.User).Str("thread", r.thread.thread).Str("session_id", r.thread.session.ID).Int("attempt", r.attempt).
		Str("command", command).Int("exit_code", result.ExitCode).Str("reason", string(result.Reason)).Float64("duration_ms", result.DurationMS).Msg(name)
}
