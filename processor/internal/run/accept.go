package run

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/internal/keymutex"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/schemas"
)

// Acceptor decides what becomes of commands, and accepts those that run here.
type Acceptor struct {
	cfg       Config
	publisher *publisher.Publisher
	sessions  *session.Sessions
	runs      *Runs

	decisions keymutex.Mutex // by key: one decision at a time
	launches  launches
}

// NewAcceptor returns the acceptor of a worker's runs.
func NewAcceptor(runs *Runs) *Acceptor {
	return &Acceptor{cfg: runs.cfg, publisher: runs.publisher, sessions: runs.sessions, runs: runs}
}

// HandleCommand accepts a command and lets it run, or answers why not. It returns once the command is on record.
func (ac *Acceptor) HandleCommand(ctx context.Context, d *schemas.Delivery) schemas.Verdict {
	// The end of the caller's context must not cut an acceptance in two: a process whose record was written unseen would be lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ac.cfg.Timeouts.Accept)
	defer cancel()
	// Without the lease there is nothing to decide, and NATS may be away.
	defer context.AfterFunc(ac.cfg.Background.Context(), func() {
		if ac.publisher.Fenced() {
			cancel()
		}
	})()
	if d.Command != nil {
		// A command that arrives on both paths at once is decided twice, one after the other: the second attaches to a process
		// that is on record.
		defer ac.decisions.Lock(key(d.Tenant, d.Process))()
	}
	return ac.decide(ctx, d)
}

// facts are what decide knows of a command.
type facts struct {
	admission
	noDisk   bool // full, for want of disk space
	thread   *session.Thread
	owner    string
	run      *Run           // the running process of the same id
	why      *schemas.Error // why it cannot run here
	record   *schemas.Event // it answers the command, whose thread has no session
	reserved bool           // a place is reserved for it
}

// decide is HandleCommand for a caller that holds the key of the command.
func (ac *Acceptor) decide(ctx context.Context, d *schemas.Delivery) schemas.Verdict {
	f := ac.gatherFacts(ctx, d)
	if f.thread != nil {
		defer f.thread.YieldPlace() // the command may not run
	}
	if f.reserved {
		defer ac.runs.unreserve(d.Tenant, d.Thread)
	}
	if f.record != nil {
		return ac.answerFrom(d, f.record, collide(collisionOf(d, f.record, 0)))
	}
	switch s := admit(f.admission); s {
	case stepRun:
		return ac.accept(ctx, d, f.thread, 0)
	case stepAttach:
		if f.run.unsettled.Load() {
			return ac.refuse(d, stepDecline, ac.unavailable(d, admission{leaving: true}))
		}
		if f.run.attach(d.Inbox) {
			ac.publisher.Answer(d.Inbox, f.run.accepted)
			return verdict(s, "", nil)
		}
		return ac.decide(ctx, d) // it has ended since: its record answers
	case stepPass:
		// What has ended, such as a canceled command, needs no worker that serves it.
		if last, _ := ac.answered(ctx, d); last != nil {
			return ac.answerFrom(d, last, collide(collisionOf(d, last, 0)))
		}
		return verdict(s, f.owner, f.why)
	case stepForward, stepWait:
		return verdict(s, f.owner, f.why)
	case stepReject:
		if f.why == nil {
			f.why = schemas.Errorf(schemas.CodeUnavailable, "delivered %d times and never accepted", d.Attempt)
		}
		// The names of an invalid command may be no ids, which the subject of an event needs.
		about := ac.about(d)
		about.Session, about.Process = "", ""
		if !schemas.ValidID(about.Tenant) {
			about.Tenant = schemas.DefaultTenant
		}
		if !schemas.ValidID(about.Thread) {
			about.Thread = "_"
		}
		ac.publisher.Publish(ctx, ac.publisher.Event(schemas.TypeValidationFailed, about, f.why))
		return ac.refuse(d, s, f.why)
	case stepConflict:
		return ac.refuse(d, s, schemas.KeyConflict(d.Thread))
	case stepRefuse:
		if d.Durable {
			return ac.reject(ctx, d, f.why, 0)
		}
		return ac.refuse(d, s, f.why)
	default:
		if f.why == nil {
			f.why = ac.unavailable(d, admission{leaving: true})
		}
		return ac.refuse(d, s, f.why)
	}
}

// gatherFacts finds out what admit has to know of a command, and claims its thread for that.
func (ac *Acceptor) gatherFacts(ctx context.Context, d *schemas.Delivery) facts {
	f := facts{admission: admission{invalid: d.Invalid != nil, durable: d.Durable, worn: d.Attempt > ac.cfg.MaxAttempts}, why: d.Invalid}
	if d.Command == nil {
		return f
	}
	f.why = nil
	f.run, f.leaving, f.full = ac.runs.look(d.Tenant, d.Thread, d.Process)
	if f.run != nil {
		f.running, f.same = true, f.run.fingerprint == d.Fingerprint
		return f
	}
	if f.leaving {
		return f
	}
	f.noDisk = ac.cfg.Disk() != nil
	f.full = f.full || f.noDisk
	want := session.Request{
		Placement: session.Placement{Provider: d.Command.Provider, Image: d.Command.Image}, Template: d.Command.Template, Session: d.Command.Session,
		Origin: d.Command.Origin, Sandbox: true, Waits: d.Durable,
	}
	var err error
	switch f.thread = ac.sessions.Find(d.Tenant, d.Thread); {
	case f.thread != nil && ac.sessions.Settled(f.thread, &want):
		f.owner, err = ac.publisher.Worker, want.FitsThread(f.thread)
	case d.Durable && (f.noDisk && !ac.cfg.Temporary || !ac.runs.reserve(d.Tenant, d.Thread)): // a thread that it claims could not go to a worker with room
		f.full = true
		return ac.whenFull(ctx, d, f)
	default:
		f.reserved = d.Durable
		want.Check = func(ctx context.Context) (err error) {
			f.record, err = ac.answered(ctx, d)
			return err
		}
		var claim session.Claim
		claim, err = ac.sessions.Claim(ctx, d.Tenant, d.Thread, want)
		f.thread, f.owner = claim.Thread, claim.Owner
	}
	if f.record != nil {
		return f
	}
	switch {
	case err == nil && f.thread == nil:
		f.foreign = true
		return f
	case err == nil:
	case session.Unserved(err):
		f.unserved, f.why = true, schemas.AsError(err)
		return f
	case session.Full(err):
		f.full, f.why = true, schemas.AsError(err)
		return f
	case schemas.CodeOf(err).Final(), session.Unreadable(err):
		f.refused, f.why = true, schemas.AsError(err)
		return f
	default:
		f.unknown, f.why = true, schemas.AsError(err)
		return f
	}
	switch {
	case d.Command.Message != nil && f.thread.Template.Agent == nil:
		f.refused = true
		f.why = schemas.Errorf(schemas.CodeInvalidArgument,
			"template: that of thread %s, %s, has no agent: name one that has (see `sluice template list`), after `sluice session stop --thread %s` if the session has run something", d.Thread, cmp.Or(f.thread.Session.Template, session.DefaultTemplate), d.Thread).With("path", "template")
		return f
	case d.Command.Message != nil, ac.cfg.Policy == nil: // an agent's command comes from the template
	default:
		if err := ac.cfg.Policy.Check(f.thread.Template, d.Command.Exec.Command, d.Command.Exec.Args); err != nil {
			f.denied, f.why = true, schemas.AsError(err)
			return f
		}
	}
	if f.full {
		f.why = ac.unavailable(d, admission{full: true})
	}
	return f
}

// whenFull is gatherFacts for the thread of a durable command that this worker has not claimed and has no room for.
func (ac *Acceptor) whenFull(ctx context.Context, d *schemas.Delivery, f facts) facts {
	var err error
	f.owner, err = ac.sessions.Owner(ctx, d.Tenant, d.Thread)
	f.unknown, f.foreign = err != nil, f.owner != "" && f.owner != ac.publisher.Worker
	f.why = schemas.AsError(err)
	return f
}

// unavailable is the reason why there is no room for a command now.
func (ac *Acceptor) unavailable(d *schemas.Delivery, a admission) *schemas.Error {
	switch {
	case a.leaving:
		return schemas.Errorf(schemas.CodeUnavailable, "worker %s cannot take commands of thread %s now: try again", ac.publisher.Worker, d.Thread)
	case a.full:
		if err := ac.cfg.Disk(); err != nil {
			return schemas.AsError(err)
		}
		return ac.runs.shortage(d.Tenant, d.Thread)
	default:
		return schemas.Errorf(schemas.CodeUnavailable, "thread %s is changing its owner: try again", d.Thread)
	}
}

// refuse answers a command that does not run. A declined durable one gets no answer: it is delivered again.
func (ac *Acceptor) refuse(d *schemas.Delivery, s step, why *schemas.Error) schemas.Verdict {
	if s == stepWait {
		return verdict(s, ac.publisher.Worker, why)
	}
	if s == stepDecline {
		if d.Durable {
			return verdict(s, "", why)
		}
		// A caller falls back to CMD on unavailable alone. The detail marks this as no end for a caller that has done so by then.
		why = schemas.Errorf(schemas.CodeUnavailable, "%s", why.Message).With(schemas.DetailDeclined, "now")
	}
	// This answer is no record, and is not stored. By its missing fingerprint a caller knows it from one.
	ac.publisher.Answer(d.Inbox, ac.rejection(d, "", why))
	ac.logRefused(d, ac.sessions.IDOf(d.Tenant, d.Thread), why)
	return verdict(s, "", why)
}

// reject ends a durable command that no worker can serve: with its answer, CMD forgets it. A caller that missed the answer finds
// the record. An error that may pass takes no key: the command is a dead letter then.
func (ac *Acceptor) reject(ctx context.Context, d *schemas.Delivery, why *schemas.Error, after uint64) schemas.Verdict {
	if !why.Code.Final() {
		return ac.refuse(d, stepReject, why)
	}
	ev := ac.rejection(d, d.Fingerprint, why)
	seq, err := ac.cfg.Records.Append(ctx, ev, after)
	switch {
	case err == nil:
		ac.runs.SawSeq(seq)
		ac.publisher.Answer(d.Inbox, ev)
		ac.logRefused(d, ev.Session, why)
		return verdict(stepRefuse, "", why)
	case !errors.Is(err, schemas.ErrConflict):
		return ac.refuse(d, stepDecline, schemas.AsError(err))
	}
	// The key has a record: the command's own, from an earlier session or delivery, or another command's.
	last, err := ac.cfg.Records.Last(ctx, d.Tenant, d.Thread, d.Process)
	if err != nil {
		return ac.refuse(d, stepDecline, schemas.AsError(err))
	}
	of, err := recordOf(last)
	switch {
	case err != nil || of.Fingerprint != d.Fingerprint:
		return ac.refuse(d, stepConflict, schemas.KeyConflict(d.Thread))
	case after == 0 && !of.answers(d, last):
		return ac.reject(ctx, d, why, last.Seq)
	}
	ac.publisher.Answer(d.Inbox, last)
	return verdict(stepReplay, "", nil)
}

// about is what the events of a command that does not run are about.
func (ac *Acceptor) about(d *schemas.Delivery) publisher.About {
	a := ac.sessions.About(d.Tenant, d.Thread)
	if d.Command != nil {
		a.Template, a.Origin = cmp.Or(a.Template, d.Command.Template), d.Command.Origin
	}
	a.Process = d.Process
	return a
}

// rejection is the event of a command that does not run. One without a fingerprint is no record.
func (ac *Acceptor) rejection(d *schemas.Delivery, fingerprint string, why *schemas.Error) *schemas.Event {
	result := &schemas.Result{
		Process: d.Process, Thread: d.Thread, Reason: schemas.ReasonRejected, ExitCode: schemas.ExitSluiceFailed,
		Timestamp: time.Now().UTC(), Error: why, Worker: ac.publisher.Worker, Fingerprint: fingerprint,
	}
	if d.Command != nil && d.Command.Exec != nil {
		result.Command = d.Command.Exec.Command
	}
	about := ac.about(d)
	if fingerprint == "" {
		about.Session = ""
	}
	return ac.publisher.Event(schemas.TypeProcessRejected, about, result)
}

func (ac *Acceptor) logRefused(d *schemas.Delivery, sessionID string, why *schemas.Error) {
	publisher.LogCommand(ac.publisher.Log.Info(), d.Process, d.Thread, sessionID, d.Attempt).
		Str("code", string(why.Code)).Str("reason", why.Message).Msg("command_refused")
}

// identity is what the records of a process have in common.
type identity struct {
	Fingerprint string         `json:"fingerprint"`
	Epoch       uint64         `json:"epoch"`
	Reason      schemas.Reason `json:"reason"`
	Error       *schemas.Error `json:"error"`
}

// runsAgain reports that the record rejects its command for a cause that may pass.
func (of *identity) runsAgain() bool {
	return (&schemas.Result{Reason: of.Reason, Error: of.Error}).RunsAgain()
}

// answers reports that the record, of the same command, answers this delivery: its command does not run again, or CMD stored it before
// the record. Both times are the server's. A command that comes directly is delivered once, so no record answers it yet.
func (of *identity) answers(d *schemas.Delivery, record *schemas.Event) bool {
	if record.Type == schemas.TypeProcessLost {
		return d.Command.Exec == nil || d.Command.Exec.Retry != schemas.RetrySafe
	}
	return !of.runsAgain() || (!d.Sent.IsZero() && record.Stored.After(d.Sent))
}

func recordOf(ev *schemas.Event) (of identity, err error) {
	err = ev.Decode(&of)
	return of, err
}

// accept writes the process's first record, after the one at this sequence (0 for none), and starts the run. The record comes
// before the fork: otherwise a second worker could fork as well.
func (ac *Acceptor) accept(ctx context.Context, d *schemas.Delivery, t *session.Thread, after uint64) schemas.Verdict {
	run := ac.runs.newRun(t, d)
	run.reruns = after > 0
	if a, why := ac.runs.enter(run, d.Durable); a != (admission{}) {
		a.durable = d.Durable
		if why == nil {
			why = ac.unavailable(d, a)
		}
		return ac.refuse(d, admit(a), why)
	}
	record := schemas.Accepted{
		Fingerprint: d.Fingerprint, Command: run.exec.Command, Args: run.args, ArgsTruncated: run.argsTruncated, TimeoutMS: run.exec.TimeoutMS,
		Epoch: run.epoch, Retry: run.exec.Retry, AutoCleanup: run.exec.AutoCleanup, Main: run.exec.Main, OutputLimit: run.exec.OutputLimit, StdinOpen: run.exec.StdinOpen, StdinBytes: int64(len(run.exec.Stdin)),
		StdinFrom: run.exec.StdinFrom, TTY: run.exec.TTY,
	}
	if run.turn != nil {
		record.Op, record.User = schemas.OpMessage, run.user
	}
	run.accepted = ac.runs.recorder.event(run, schemas.TypeProcessAccepted, record)
	seq, err := ac.cfg.Records.Append(ctx, run.accepted, after)
	if unknownOutcome(err) {
		run.unsettled.Store(true)
		ac.launches.accepted(run)
		ac.runs.ending.Go(func() { ac.runs.settleAcceptance(run, after) })
		ac.runs.ending.Done()
		return ac.refuse(d, stepDecline, schemas.AsError(err))
	}
	if err != nil {
		ac.runs.leave(run)
		if run.turn != nil {
			ac.runs.ending.Go(run.turn.Done)
		}
		ac.runs.ending.Done()
		conflict := errors.Is(err, schemas.ErrConflict)
		if conflict && after == 0 {
			return ac.onDuplicateKey(ctx, d, t)
		}
		s := stepRefuse
		if d.Durable || conflict {
			s = stepDecline
		}
		return ac.refuse(d, s, schemas.AsError(err))
	}
	ac.runs.SawSeq(seq)
	run.seq = seq
	ac.runs.recorder.answerAccepted(d, run)
	ac.launches.accepted(run)
	go func() {
		defer ac.runs.ending.Done()
		ac.runs.runToEnd(run, func(result *schemas.Result) error { return ac.runs.execute(run, result) })
	}()
	return verdict(stepRun, "", nil)
}
