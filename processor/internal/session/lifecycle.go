package session

import (
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// occurrence is something that happens to a sandbox.
type occurrence int

const (
	occurAsk     occurrence = iota // its provider is called
	occurReady                     // it answers, and its cold start succeeded
	occurFail                      // it could not be created, or its cold start failed
	occurEnd                       // it ended by itself, or was parked
	occurStop                      // its end is requested
	occurGone                      // it has ended on request
	occurOverdue                   // the deadline of its state has passed
	occurrences
)

// sandboxEnding is between the request to end a sandbox and its end. It is internal: no event reports it.
const sandboxEnding schemas.SandboxState = "ending"

// transitions is the whole state machine; the package comment draws it. An occurrence without an entry changes nothing.
func transitions(from schemas.SandboxState, o occurrence) (to schemas.SandboxState, ok bool) {
	switch from {
	case schemas.SandboxPending:
		to, ok = map[occurrence]schemas.SandboxState{
			occurAsk: schemas.SandboxCreating, occurFail: schemas.SandboxFailed, occurOverdue: schemas.SandboxFailed,
			occurStop: schemas.SandboxTerminated, // nothing was created yet
		}[o]
	case schemas.SandboxCreating:
		to, ok = map[occurrence]schemas.SandboxState{
			occurReady: schemas.SandboxRunning, occurFail: schemas.SandboxFailed, occurEnd: schemas.SandboxFailed,
			occurOverdue: schemas.SandboxFailed, occurStop: sandboxEnding,
		}[o]
	case schemas.SandboxRunning:
		to, ok = map[occurrence]schemas.SandboxState{
			occurEnd: schemas.SandboxCompleted, occurFail: schemas.SandboxFailed, occurStop: sandboxEnding, occurOverdue: sandboxEnding,
		}[o]
	case sandboxEnding:
		to, ok = map[occurrence]schemas.SandboxState{
			occurGone: schemas.SandboxTerminated, occurEnd: schemas.SandboxTerminated, occurFail: schemas.SandboxTerminated,
			occurOverdue: schemas.SandboxTerminated,
		}[o]
	}
	return to, ok
}

// bounds limit the time that a sandbox may stay in each state that is not final.
type bounds struct {
	pending, creating, ending time.Duration
	running                   time.Time // zero: no limit
}

// life is the state of a sandbox, with its deadline.
type life struct {
	state  schemas.SandboxState
	due    time.Time // zero: no deadline
	bounds bounds
}

// newLife is the life of a sandbox that was just requested.
func newLife(now time.Time, b bounds) life {
	return life{state: schemas.SandboxPending, due: now.Add(b.pending), bounds: b}
}

// apply takes the state machine one step on, and returns whether there was a step.
func (l *life) apply(o occurrence, now time.Time) bool {
	to, ok := transitions(l.state, o)
	if !ok {
		return false
	}
	l.state = to
	switch to {
	case schemas.SandboxCreating:
		l.due = now.Add(l.bounds.creating)
	case schemas.SandboxRunning:
		l.due = l.bounds.running
	case sandboxEnding:
		l.due = now.Add(l.bounds.ending)
	default:
		l.due = time.Time{}
	}
	return true
}

// eventOf is the event that reports a state.
func eventOf(s schemas.SandboxState) schemas.EventType {
	return schemas.EventType("sandbox." + string(s))
}

// apply takes a sandbox's life one step on and reports the new state. It returns whether there was a step; err is why it failed.
func (sbs *sandboxes) apply(t *Thread, a *sandboxAttempt, o occurrence, err error) bool {
	t.mu.Lock()
	stepped := sbs.applyLocked(t, a, o, err)
	t.mu.Unlock()
	if stepped {
		t.YieldPlace()
	}
	return stepped
}

// applyLocked is apply for a caller that holds t.mu, and calls YieldPlace without it.
func (sbs *sandboxes) applyLocked(t *Thread, a *sandboxAttempt, o occurrence, err error) bool {
	stepped := a.life.apply(o, time.Now())
	if stepped {
		sbs.reportLocked(t, a, err)
	}
	return stepped
}

// fail ends an attempt without a sandbox in the same step that reports it: who asks for a sandbox after that gets another one.
func (sbs *sandboxes) fail(t *Thread, a *sandboxAttempt, o occurrence, err error) {
	t.mu.Lock()
	a.err = err
	sbs.applyLocked(t, a, o, err)
	close(a.done)
	t.mu.Unlock()
	t.YieldPlace()
}
