package processor

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// HandleCommand accepts a command and lets it run, or answers why not. It returns once the command is on record.
func (w *Worker) HandleCommand(ctx context.Context, d schemas.Delivery) schemas.Verdict {
	// The listener's end must not cut an acceptance in two: a record that was written unseen would be told as lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.patience.accept)
	defer cancel()
	if d.Command != nil {
		// A command that comes by both ways at once is decided on twice, one after the other: whoever attaches to a process
		// attaches to one that is on record.
		defer w.commands.lock(runKey(d.Tenant, d.Process))()
	}
	return w.decide(ctx, d)
}

// decide is HandleCommand for a command on which nobody else decides meanwhile.
func (w *Worker) decide(ctx context.Context, d schemas.Delivery) schemas.Verdict {
	a := admission{invalid: d.Invalid != nil, durable: d.Durable, worn: d.Attempt > w.cfg.MaxAttempts}
	why := d.Invalid
	var t *thread
	var owner string
	if d.Command != nil {
		t, owner, why = w.inquire(ctx, &d, &a)
	}
	switch s := admit(a); s {
	case stepRun:
		return w.accept(ctx, t, d)
	case stepAttach:
		if r := w.find(d.Tenant, d.Process); r != nil && r.attach(d.Inbox) {
			w.answer(d.Inbox, r.accepted)
			return verdict(s, "", nil)
		}
		return w.decide(ctx, d) // it ended between the two looks: its record answers
	case stepReject:
		if why == nil {
			why = schemas.Errorf(schemas.CodeUnavailable, "delivered %d times and never accepted", d.Attempt)
		}
		w.publish(ctx, w.event(schemas.TypeValidationFailed, tenantOf(d), threadOf(d), "", "", why))
		return w.turnDown(&d, s, owner, why)
	case stepConflict:
		return w.turnDown(&d, s, owner, conflict(&d))
	case stepForward:
		return verdict(s, owner, nil)
	default:
		if why == nil {
			why = w.busy(&d, admission{leaving: true})
		}
		return w.turnDown(&d, s, owner, why)
	}
}

// tenantOf and threadOf name the stream of events for a command whose own names may be no ids.
func tenantOf(d schemas.Delivery) string {
	if schemas.ValidID(d.Tenant) {
		return d.Tenant
	}
	return schemas.DefaultTenant
}

func threadOf(d schemas.Delivery) string {
	if schemas.ValidID(d.Thread) {
		return d.Thread
	}
	return "_"
}

// inquire finds out what admit has to know of a valid command.
func (w *Worker) inquire(ctx context.Context, d *schemas.Delivery, a *admission) (t *thread, owner string, why *schemas.Error) {
	w.mu.Lock()
	t = w.threads[threadKey(d.Tenant, d.Thread)]
	a.leaving = w.leaving || w.isFenced()
	r := w.runs[runKey(d.Tenant, d.Process)]
	a.full = len(w.runs) >= w.cfg.MaxProcesses
	w.mu.Unlock()
	if r != nil {
		a.running, a.same = true, r.fingerprint == d.Fingerprint
		return t, w.cfg.Worker, nil
	}
	if a.leaving {
		return nil, "", nil
	}
	owner = w.cfg.Worker
	v := wants{kind: kindOf(d.Command), template: d.Command.Template, session: d.Command.Session}
	var err error
	if t == nil {
		var c claimed
		c, err = w.claim(ctx, d.Tenant, d.Thread, v)
		t, owner = c.thread, c.owner
		if err == nil && t == nil {
			a.foreign = true
			return nil, owner, nil
		}
	} else {
		err = v.fits(&t.session)
	}
	switch {
	case err == nil:
	case schemas.CodeOf(err).Final(), errors.Is(err, schemas.ErrUnavailable) && w.cfg.DefaultProvider == "":
		a.unserved = true
		return t, owner, schemas.AsError(err)
	default:
		a.unknown = true
		return nil, "", schemas.AsError(err)
	}
	switch {
	case d.Command.Message != nil && t.template.Agent == nil:
		a.unserved = true
		return t, owner, schemas.Errorf(schemas.CodeInvalidArgument,
			"template: thread %s has a session of template %s, which has no agent: stop that session, or begin another thread, with one that has: see `sluice template list`", d.Thread, or(t.session.Template, defaultTemplate)).With("path", "template")
	case d.Command.Message != nil, w.cfg.Policy == nil: // an agent's command is the template's own
	default:
		if err := w.cfg.Policy.Check(t.template, d.Command.Exec.Command, d.Command.Exec.Args); err != nil {
			a.denied = true
			return t, owner, schemas.AsError(err)
		}
	}
	if a.full {
		why = w.busy(d, admission{full: true})
	}
	return t, owner, why
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// turnDown answers a command that is not run. A declined durable one gets no answer: it comes again.
func (w *Worker) turnDown(d *schemas.Delivery, s step, owner string, why *schemas.Error) schemas.Verdict {
	if s == stepDecline {
		if d.Durable {
			return verdict(s, owner, why)
		}
		// A caller falls back to CMD on unavailable alone.
		why = schemas.Errorf(schemas.CodeUnavailable, "%s", why.Message)
	}
	refusal := w.refusal(d, why)
	w.answer(d.Inbox, refusal)
	w.cfg.Log.Info().Str("command_id", refusal.Process).Str("thread", d.Thread).Str("session_id", w.sessionOf(d)).Str("code", string(why.Code)).Int("attempt", d.Attempt).Str("reason", why.Message).Msg("command_refused")
	return verdict(s, owner, why)
}

// sessionOf is the id of the thread's session, empty where this worker has none.
func (w *Worker) sessionOf(d *schemas.Delivery) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.threads[threadKey(d.Tenant, d.Thread)]; t != nil {
		return t.session.ID
	}
	return ""
}

func (w *Worker) answer(inbox string, ev *schemas.Event) {
	if inbox == "" || (w.isFenced() && ev.Type != schemas.TypeProcessRejected) {
		return // what came of a command is for the thread's owner to say
	}
	if err := w.cfg.Answer(inbox, ev); err != nil {
		w.cfg.Log.Debug().Err(err).Str("process", ev.Process).Msg("answer")
	}
}

func conflict(d *schemas.Delivery) *schemas.Error {
	// The key itself is not for logs: it is what keeps a fingerprint from being tried out.
	return schemas.Errorf(schemas.CodeConflict, "this key was used for another command in thread %s: take a new key", d.Thread)
}

// collided answers a command whose key was taken.
func (w *Worker) collided(ctx context.Context, t *thread, d *schemas.Delivery, again func(after uint64) schemas.Verdict) schemas.Verdict {
	process := d.Process
	last, err := w.cfg.Records.Last(ctx, d.Tenant, d.Thread, process)
	c := collision{unreadable: err != nil, safe: d.Command.Exec != nil && d.Command.Exec.Retry == schemas.RetrySafe}
	if err == nil {
		c.last = last.Type
		var mark struct {
			Fingerprint string `json:"fingerprint"`
			Epoch       uint64 `json:"epoch"`
		}
		c.unreadable = last.Decode(&mark) != nil
		c.same = mark.Fingerprint == d.Fingerprint
		// Under this epoch nobody but this worker can have written, and it does not run the process.
		c.foreign = mark.Epoch > t.session.Epoch
	}
	switch s := collide(c); s {
	case stepReplay:
		w.answer(d.Inbox, last)
		w.cfg.Log.Info().Str("command_id", process).Str("thread", d.Thread).Str("session_id", t.session.ID).Int("attempt", d.Attempt).
			Str("record", string(last.Type)).Msg("command_replayed")
		return verdict(s, "", nil)
	case stepLose:
		lost, err := w.lose(ctx, last)
		if err != nil {
			// Somebody was first, or the stream is out of reach: either way the record answers the next delivery.
			return w.turnDown(d, stepDecline, "", schemas.AsError(err))
		}
		w.answer(d.Inbox, lost)
		return verdict(s, "", nil)
	case stepRerun:
		return again(last.Seq)
	case stepConflict:
		return w.turnDown(d, s, "", conflict(d))
	default:
		if err == nil {
			err = schemas.Errorf(schemas.CodeUnavailable, "process %s belongs to a later owner of thread %s", process, d.Thread)
		}
		return w.turnDown(d, stepDecline, "", schemas.AsError(err))
	}
}
