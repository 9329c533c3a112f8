package session

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// Termination is the end of a session, under way or done. Callers that ask for the same end meanwhile get the same answer.
type Termination struct {
	event schemas.EventType // session.terminated or session.expired
	main  *schemas.Result   // of the main process, whose end this follows; nil for none

	mu       sync.Mutex
	grace    *time.Duration // for the runs; nil for the template's until the end is under way
	snapshot bool           // keep the session when its workspace cannot be pushed
	remove   bool           // the workspace's folder too
	settled  bool           // remove was acted on
	over     bool
	reply    schemas.SessionReply
	waiting  []func(schemas.SessionReply)
}

// stopTermination is what a stop request asks for.
func stopTermination(req *schemas.StopRequest) *Termination {
	end := &Termination{event: schemas.TypeSessionTerminated, snapshot: req.Snapshot, remove: req.Delete}
	if req.GraceMS != nil {
		grace := time.Duration(*req.GraceMS) * time.Millisecond
		end.grace = &grace
	}
	return end
}

// join adds what another stop of the same session asks for, and reports whether the runs have less time now. A session whose main process
// has ended is kept for none. Errors: unavailable when it is too late to remove the folder.
func (end *Termination) join(other *Termination) (less bool, err error) {
	end.mu.Lock()
	defer end.mu.Unlock()
	if end.settled && other.remove && !end.remove {
		return false, schemas.Errorf(schemas.CodeUnavailable, "the session ends without its folder: ask again when it has ended")
	}
	if less = !end.over && other.grace != nil && *other.grace < *end.grace; less {
		end.grace = other.grace
	}
	end.snapshot = end.snapshot || other.snapshot && end.main == nil
	end.remove = end.remove || other.remove
	return less, nil
}

// settle returns whether the folder is to be removed. Who asks for it from now on is too late.
func (end *Termination) settle() (remove bool) {
	end.mu.Lock()
	defer end.mu.Unlock()
	end.settled = true
	return end.remove
}

// graceNow is the time that the runs have, of the stops that have come so far.
func (end *Termination) graceNow() time.Duration {
	end.mu.Lock()
	defer end.mu.Unlock()
	return *end.grace
}

// keeps reports whether the session is kept when its workspace cannot be pushed.
func (end *Termination) keeps() bool {
	end.mu.Lock()
	defer end.mu.Unlock()
	return end.snapshot
}

// onDone calls done with the outcome, now or once there is one.
func (end *Termination) onDone(done func(schemas.SessionReply)) {
	end.mu.Lock()
	over := end.over
	if !over {
		end.waiting = append(end.waiting, done)
	}
	end.mu.Unlock()
	if over {
		done(end.reply)
	}
}

func (end *Termination) finish(reply schemas.SessionReply) {
	end.mu.Lock()
	end.over, end.reply = true, reply
	end.mu.Unlock()
	end.answer(reply)
}

// answer answers those that wait, for now.
func (end *Termination) answer(reply schemas.SessionReply) {
	end.mu.Lock()
	waiting := end.waiting
	end.waiting = nil
	end.mu.Unlock()
	for _, done := range waiting {
		done(reply)
	}
}

// Wait waits for the outcome, or for ctx.
func (end *Termination) Wait(ctx context.Context) {
	over := make(chan struct{})
	end.onDone(func(schemas.SessionReply) { close(over) })
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// terminate starts the end of a thread's session, or joins the one under way. If still is set, it is called in the same step that
// keeps further commands out; when it returns false, nothing starts and the result is nil. Errors: unavailable, invalid_argument.
func (ss *Sessions) terminate(t *Thread, end *Termination, still func() bool) (*Termination, error) {
	if end.snapshot && (ss.cfg.Hooks == nil || t.Template.Sync == nil) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "snapshot: template %q of thread %s has no sync location for the workspace: stop without a snapshot, or set a sync location", t.Template.Name, t.ID).With("path", "snapshot")
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if current := t.termination; current != nil {
		less, err := current.join(end)
		if err != nil {
			return nil, err
		}
		if less {
			ss.background.Go(func() { t.kill(current.graceNow()) })
		}
		return current, nil
	}
	if ss.leaving {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is giving thread %s up: ask again", ss.publisher.Worker, t.ID)
	}
	if still != nil && !still() {
		return nil, nil
	}
	if end.grace == nil {
		grace := ss.sandboxes.grace(t)
		end.grace = &grace
	}
	if !ss.background.Go(func() { ss.end(t, end) }) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker)
	}
	t.termination = end
	return end, nil
}

// Complete ends the session of a thread whose main process has ended. One that is being ended goes on as it is, and that of a worker
// that shuts down stays.
func (ss *Sessions) Complete(t *Thread, main *schemas.Result) {
	if _, err := ss.terminate(t, &Termination{event: schemas.TypeSessionTerminated, main: main}, nil); err != nil {
		t.log(ss.publisher.Log.Info().Err(err)).Msg("session stays after its main process")
	}
}

// completed sets how the session of a main process has ended.
func completed(s *schemas.Session, main *schemas.Result) {
	if main.Reason == schemas.ReasonLost {
		s.State = schemas.SandboxFailed
		return
	}
	s.State, s.ExitCode = schemas.SandboxCompleted, &main.ExitCode
}

// end kills the runs, runs the hooks, ends the sandbox and forgets the session. Every step has a bound, but the session stays until its
// sandbox has ended.
func (ss *Sessions) end(t *Thread, end *Termination) {
	if end.event == schemas.TypeSessionExpired {
		ss.drainSlots <- struct{}{}
		defer func() { <-ss.drainSlots }()
	}
	timeouts := &ss.cfg.Timeouts
	grace := end.graceNow()
	t.kill(grace)
	work.Within(t.whenIdle(), grace+timeouts.Kill+timeouts.Answer)
	failed, hookErr := ss.sandboxes.terminateHooks(ss.background.Context(), t, timeouts.Hooks)
	owed := ss.sandboxes.owed(t)
	if end.keeps() && (hookErr != nil || len(failed) > 0 || owed != nil) {
		end.finish(ss.keep(t, failed, cmp.Or(hookErr, owedError(owed))))
		return
	}
	grace = end.graceNow()
	ctx, cancel := context.WithTimeout(ss.background.Context(), grace+timeouts.SandboxEnd)
	defer cancel()
	why := occurStop
	if end.main != nil {
		why = occurEnd
	}
	if ss.sandboxes.end(ctx, t, grace, why) {
		ss.conclude(t, end, failed, hookErr, owed)
		return
	}
	// Without the slot of an expired session, which others need.
	ss.background.Go(func() {
		stuck := func(err error) {
			current := ss.Info(t)
			end.answer(schemas.SessionReply{Session: &current, Error: schemas.AsError(err)})
		}
		if ss.sandboxes.insist(t, stuck) {
			ss.conclude(t, end, failed, hookErr, owed)
		}
	})
}

// conclude forgets a session whose sandbox has ended, and answers.
func (ss *Sessions) conclude(t *Thread, end *Termination, failed []string, hookErr error, owed *schemas.OwedPush) {
	ctx, cancel := context.WithTimeout(ss.background.Context(), ss.cfg.Timeouts.Accept)
	defer cancel()
	remove := end.settle()
	var err error
	pushed := owed == nil && (hookErr == nil || t.Template.Sync == nil) // a critical failure may have kept the push from running
	if remove && pushed && !ss.publisher.Fenced() {
		err = ss.workspaces.delete(t.Tenant, t.ID)
	}
	last, forgetErr := ss.forget(ctx, t, end.event, func(s *schemas.Session) {
		s.FailedHooks, s.Terminating = failed, false
		if end.main != nil {
			completed(s, end.main)
		}
		if owed != nil {
			s.Unpushed = owed.Error
		}
		s.WorkspaceUntil = ss.workspaces.until(s, time.Now())
	})
	if errors.Is(forgetErr, schemas.ErrLost) {
		return // another worker may own the thread: that one answers
	}
	reply := schemas.SessionReply{Session: &last}
	switch {
	case forgetErr != nil:
		err = forgetErr
		reply.Error = schemas.Errorf(schemas.CodeOf(err), "the session of thread %s has ended, but its entry could not be deleted yet: the worker tries again: %w", t.ID, err)
	case err != nil:
		reply.Error = schemas.Errorf(schemas.CodeInternal, "the session of thread %s has ended, but its folder could not be removed: %w", t.ID, err)
	case hookErr != nil:
		err = hookErr
		reply.Error = schemas.Errorf(schemas.CodeInternal, "the session of thread %s has ended, but its terminate hooks failed: %w", t.ID, err)
	case remove && owed != nil:
		err = owedError(owed)
		reply.Error = schemas.Errorf(schemas.CodeInternal, "the session of thread %s has ended, but worker %s keeps its workspace until it is pushed: %w", t.ID, owed.Worker, err)
	}
	name := "session_terminated"
	if end.event == schemas.TypeSessionExpired {
		name = "session_expired"
	}
	if forgetErr == nil {
		ss.background.Go(func() { ss.workspaces.note(ss.background.Context(), &last) })
	}
	t.log(ss.publisher.Log.Info().Err(err)).Msg(name)
	end.finish(reply)
}

// keep ends a termination whose workspace could not be pushed, and returns the answer: the session goes on.
func (ss *Sessions) keep(t *Thread, failed []string, err error) schemas.SessionReply {
	t.mu.Lock()
	t.termination = nil
	t.kept++
	t.lastUsed = time.Now()
	t.mu.Unlock()
	t.YieldPlace()
	if err == nil {
		err = schemas.Errorf(schemas.CodeUnavailable, "hooks failed: %q", failed)
	}
	current := ss.Info(t)
	return schemas.SessionReply{Session: &current, Error: schemas.Errorf(schemas.CodeOf(err), "the workspace of thread %s was not pushed, and its session is kept: %w", t.ID, err)}
}

// owedError is why an owed push failed, nil for none.
func owedError(owed *schemas.OwedPush) error {
	if owed == nil || owed.Error == nil {
		return nil
	}
	return owed.Error
}
