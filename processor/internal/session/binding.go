package session

import (
	"context"
	"reflect"

	"github.com/sluice-dev/sluice/schemas"
)

// A session is bound to its template, provider and image once a sandbox of it has run. Until then a request for others replaces them,
// and so does a template that was reloaded: the worker replaces the Thread, under the session's next epoch.
//
//	Settled ──no──► replace ──► tryClaim ──► fill ──► a new Thread of the same session

// isBound reports whether a sandbox of the session has run. Entries of workers before Bound existed have a state.
func isBound(s *schemas.Session) bool {
	return s.Bound || (s.State != "" && s.State != schemas.SandboxFailed)
}

// Settled reports whether a thread serves a request as it is, or cannot change: its session is bound or in use, or has what the request
// and the template's file ask for. A thread that is not settled has to be claimed.
func (ss *Sessions) Settled(t *Thread, want *Request) bool {
	t.mu.Lock()
	settled := !t.changeable()
	t.mu.Unlock()
	if settled || sameSession(want.Session, &t.Session) != nil {
		return true
	}
	template, err := ss.cfg.Template(t.Session.Template)
	return want.FitsThread(t) == nil && (err != nil || reflect.DeepEqual(template, t.Template))
}

// changeable reports whether nothing has run in the thread's session and nothing is about to. The caller holds t.mu.
func (t *Thread) changeable() bool {
	return !t.bound && t.busy == 0 && t.termination == nil && (t.attempt == nil || t.attempt.ended())
}

// replace gives a thread up for another Thread of the same session, and returns false when it is no longer changeable. The caller
// holds the claim lock. If the claim fails then, the next one finds a session that this worker left.
func (ss *Sessions) replace(ctx context.Context, t *Thread) bool {
	ss.mu.Lock()
	t.mu.Lock()
	ok := t.changeable()
	if ok {
		// A caller that found the thread before claims it again.
		t.termination = &Termination{over: true, reply: schemas.SessionReply{
			Error: schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s has changed: ask again", t.ID),
		}}
		delete(ss.threads, key(t.Tenant, t.ID))
		t.withdrawLocked()
	}
	t.mu.Unlock()
	ss.mu.Unlock()
	if ok {
		ss.cfg.Places.freed()
		t.Flush(ctx)
	}
	return ok
}

// wayOut completes the error of a request that does not fit a thread's session.
func wayOut(thread string) string {
	return "use another thread, or end that session with `sluice session stop --thread " + thread + "`"
}
