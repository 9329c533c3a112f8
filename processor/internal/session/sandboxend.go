package session

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// end ends the thread's sandbox, if it has one. why is occurStop, or occurEnd when it has completed. It returns false when the sandbox has
// not ended by the end of ctx.
func (sbs *sandboxes) end(ctx context.Context, t *Thread, grace time.Duration, why occurrence) (ended bool) {
	t.mu.Lock()
	a := t.attempt
	t.mu.Unlock()
	if a == nil {
		return true
	}
	sbs.apply(t, a, why, nil)
	select {
	case <-a.done:
	case <-ctx.Done():
		if sbs.leaveToCreate(t, a) {
			return true
		}
	}
	if a.sandbox != nil && a.sandbox.Terminate(ctx, grace) != nil {
		return false // its error is ctx's
	}
	sbs.apply(t, a, occurGone, nil)
	return true
}

// leaveToCreate has create end a sandbox that is not ready, and returns false for one that is: create has left its end to the caller.
func (sbs *sandboxes) leaveToCreate(t *Thread, a *sandboxAttempt) bool {
	t.mu.Lock()
	select {
	case <-a.done:
		t.mu.Unlock()
		return false
	default:
	}
	sbs.applyLocked(t, a, occurOverdue, nil)
	t.mu.Unlock()
	t.YieldPlace()
	return true
}

// insist goes on to end a sandbox that did not end in its time, and calls stuck each time that it still has not. It returns false when the
// worker ends first.
func (sbs *sandboxes) insist(t *Thread, stuck func(error)) bool {
	t.mu.Lock()
	a := t.attempt
	t.mu.Unlock()
	begun := time.Now()
	for try := 0; ; try++ {
		err := schemas.Errorf(schemas.CodeUnavailable, "sandbox %s of thread %s does not end: worker %s goes on to kill it, and the session stays until it has ended", a.id, t.ID, sbs.publisher.Worker)
		t.log(sbs.publisher.Log.Warn()).Str("sandbox", a.id).Dur("since_ms", time.Since(begun)).Msg("sandbox does not end")
		if try == 0 {
			t.mu.Lock()
			info := schemas.SandboxInfo{ID: a.id, Provider: t.Session.Provider, State: schemas.SandboxRunning, Workspace: a.home, Error: err}
			sbs.entries.updateLocked(t, update{event: sbs.entries.event(t, a.origin, schemas.TypeSandboxEnding, info),
				edit: func(s *schemas.Session) { s.Terminating = true }})
			t.mu.Unlock()
		}
		stuck(err)
		ctx, cancel := context.WithTimeout(sbs.background.Context(), sbs.timeouts.SandboxEnd)
		failed := a.sandbox.Terminate(ctx, 0)
		select { // a provider that gives up at once is not asked again before
		case <-a.sandbox.Done():
			failed = nil
		case <-ctx.Done():
		}
		cancel()
		if failed == nil {
			sbs.apply(t, a, occurGone, nil)
			return true
		}
		if sbs.background.Context().Err() != nil {
			return false
		}
	}
}

// parkable reports whether the thread's sandbox is running and has been idle for the template's park time. The caller holds t.mu.
func (t *Thread) parkable(now time.Time) bool {
	after, a := time.Duration(t.Template.Session.ParkAfterMS)*time.Millisecond, t.attempt
	if after == 0 || t.busy > 0 || t.termination != nil || t.parking != nil || a == nil || now.Sub(t.lastUsed) < after {
		return false
	}
	select {
	case <-a.done:
		return a.err == nil && a.life.state == schemas.SandboxRunning
	default:
		return false
	}
}

// park ends the sandbox of an idle session. The session and its workspace stay; the next command creates another sandbox, which
// waits until this one has ended.
func (sbs *sandboxes) park(t *Thread) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.parkable(time.Now()) {
		return // a command came since
	}
	a, parked := t.attempt, make(chan struct{})
	if !sbs.background.Go(func() { sbs.endParked(t, a, parked) }) {
		return
	}
	t.attempt, t.parking = nil, parked
	sbs.entries.updateLocked(t, update{edit: func(s *schemas.Session) { s.Parked = true }})
}

func (sbs *sandboxes) endParked(t *Thread, a *sandboxAttempt, parked chan struct{}) {
	sbs.drainSlots <- struct{}{}
	defer func() { <-sbs.drainSlots }()
	ctx, cancel := context.WithTimeout(sbs.background.Context(), sbs.timeouts.SandboxEnd)
	defer cancel()
	_ = a.sandbox.Terminate(ctx, 0) // its error is ctx's: the supervisor still ends with the worker
	sbs.apply(t, a, occurEnd, nil)
	t.mu.Lock()
	t.parking = nil
	t.mu.Unlock()
	t.YieldPlace()
	close(parked)
}

// handOver ends the sandbox of a thread at a shutdown, unless the next worker is to adopt it, and gives the thread up.
func (ss *Sessions) handOver(ctx context.Context, t *Thread) {
	t.mu.Lock()
	hooks := (t.attempt != nil || t.warm) && t.termination == nil
	stays := ss.cfg.Temporary && t.attempt != nil && t.attempt.adopted && !t.attempt.ended()
	t.mu.Unlock()
	if !stays {
		if hooks && !ss.publisher.Fenced() {
			_, _ = ss.sandboxes.terminateHooks(ctx, t, ss.cfg.Timeouts.SandboxEnd) // failures are logged, and do not stop the shutdown
		}
		if !ss.sandboxes.end(ctx, t, 0, occurStop) {
			t.log(ss.publisher.Log.Warn()).Msg("sandbox does not end") // its supervisor still ends with the worker
		}
	}
	ss.cfg.Subscriptions.Unsubscribe(t.Tenant, t.ID)
	t.Flush(ctx)
}
