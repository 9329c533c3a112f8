package processor

import (
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// occurrence is something that happens to a sandbox.
type occurrence int

const (
	occurAsk     occurrence = iota // its provider is asked for it
	occurReady                     // it answers, and its cold start went well
	occurFail                      // it could not be made, or its cold start failed
	occurEnd                       // it has ended by itself, or was parked
	occurWish                      // somebody wants it gone
	occurGone                      // nothing is left of it
	occurOverdue                   // the deadline of its state has passed
	occurrences
)

// sandboxEnding is between the wish that a sandbox be gone and its end. It is this worker's own: nobody is told of it.
const sandboxEnding schemas.SandboxState = "ending"

// transitions is the whole machine; doc.go draws it. What is not in it changes nothing.
func transitions(from schemas.SandboxState, o occurrence) (to schemas.SandboxState, ok bool) {
	switch from {
	case schemas.SandboxPending:
		to, ok = map[occurrence]schemas.SandboxState{
			occurAsk: schemas.SandboxCreating, occurFail: schemas.SandboxFailed, occurOverdue: schemas.SandboxFailed,
			occurWish: schemas.SandboxTerminated, // nothing was made yet
		}[o]
	case schemas.SandboxCreating:
		to, ok = map[occurrence]schemas.SandboxState{
			occurReady: schemas.SandboxRunning, occurFail: schemas.SandboxFailed, occurEnd: schemas.SandboxFailed,
			occurOverdue: schemas.SandboxFailed, occurWish: sandboxEnding,
		}[o]
	case schemas.SandboxRunning:
		to, ok = map[occurrence]schemas.SandboxState{
			occurEnd: schemas.SandboxCompleted, occurFail: schemas.SandboxFailed, occurWish: sandboxEnding, occurOverdue: sandboxEnding,
		}[o]
	case sandboxEnding:
		to, ok = map[occurrence]schemas.SandboxState{
			occurGone: schemas.SandboxTerminated, occurEnd: schemas.SandboxTerminated, occurFail: schemas.SandboxTerminated,
			occurOverdue: schemas.SandboxTerminated,
		}[o]
	}
	return to, ok
}

// bounds are how long a sandbox may stay in each state that is not final.
type bounds struct {
	pending, creating, ending time.Duration
	running                   time.Time // zero: for as long as its session has it
}

// life is where a sandbox stands, and until when it may.
type life struct {
	state  schemas.SandboxState
	due    time.Time // zero: no deadline
	bounds bounds
}

// newLife is that of a sandbox that was just asked for.
func newLife(now time.Time, b bounds) life {
	return life{state: schemas.SandboxPending, due: now.Add(b.pending), bounds: b}
}

// occur takes the machine a step on, and says whether that was one.
func (l *life) occur(o occurrence, now time.Time) bool {
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

// eventOf is the event by which a state is told.
func eventOf(s schemas.SandboxState) schemas.EventType {
	return schemas.EventType("sandbox." + string(s))
}
