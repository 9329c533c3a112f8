package run

import "github.com/sluice-dev/sluice/schemas"

// step is what becomes of a command.
type step int

const (
	stepRun      step = iota // write accepted, and run it
	stepReject               // it can never be accepted: answer why; a durable one is a dead letter
	stepRefuse               // not accepted, final for this sending: answer why; a durable one gets it on record
	stepDecline              // not now, not here: a caller falls back to CMD, a durable command comes again
	stepForward              // another worker owns the thread
	stepWait                 // no room for a durable command: it runs when there is, or elsewhere when no worker owns the thread
	stepPass                 // this worker lacks what a durable command asks for: another may have it
	stepAttach               // it runs here already: its end is sent to this caller too
	stepReplay               // it has ended: its stored result is the answer
	stepConflict             // the key belongs to another command: a durable one is a dead letter
	stepLose                 // it was accepted and no worker runs it: record that, and answer
	stepRerun                // it was accepted, and may be accepted again: a second run is safe, or there was none
)

// admission holds the facts of a command before its record is written.
type admission struct {
	invalid  bool // it does not decode, or does not validate
	durable  bool // it came from CMD, and is delivered again until a verdict ends it
	worn     bool // it was delivered too often
	leaving  bool // this worker is shutting down or has lost its lease
	foreign  bool // another live worker owns the thread
	refused  bool // the thread's session is not the one it asks for, or no worker can serve it
	unserved bool // this worker lacks its provider or its template
	denied   bool // the policy of the thread's template refuses it
	full     bool // no room for another process
	unknown  bool // the thread's owner could not be determined
	running  bool // this worker runs a process of that id
	same     bool // … for the same command
}

// admit decides before the record is written. The first row that fits decides.
func admit(a admission) step {
	rows := []struct {
		fits bool
		then step
	}{
		{a.invalid, stepReject},
		{a.durable && a.worn, stepReject},
		{a.leaving, stepDecline},
		{a.running && a.same, stepAttach},
		{a.running, stepConflict},
		{a.unknown, stepDecline},
		{a.foreign && a.durable, stepForward},
		{a.foreign, stepDecline},
		{a.refused, stepRefuse},
		{a.unserved && a.durable, stepPass},
		{a.unserved, stepDecline},
		{a.denied, stepReject},
		{a.full && a.durable, stepWait},
		{a.full, stepRefuse},
	}
	for _, r := range rows {
		if r.fits {
			return r.then
		}
	}
	return stepRun
}

// collision holds the facts of a command whose key has a record. Commands of one key are decided one at a time, so this worker
// does not run it.
type collision struct {
	unreadable bool // the record could not be read
	same       bool // it is for the same command
	last       schemas.EventType
	foreign    bool // a later owner of the thread wrote it
	safe       bool // the caller declared a second run safe
	again      bool // it rejects the command, which never ran, for a cause that may pass
	answered   bool // it was written after this command was sent: it is this command's answer
}

// collide decides when the key was taken. The first row that fits decides.
func collide(c collision) step {
	ended, rejected := c.last.Terminal(), c.last == schemas.TypeProcessRejected
	rows := []struct {
		fits bool
		then step
	}{
		{c.unreadable, stepDecline},
		{!c.same, stepConflict},
		{c.last == schemas.TypeProcessLost && c.safe, stepRerun},
		{rejected && c.again && !c.answered && c.foreign, stepDecline},
		{rejected && c.again && !c.answered, stepRerun},
		{ended, stepReplay},
		{c.foreign, stepDecline},
		{c.safe, stepRerun},
	}
	for _, r := range rows {
		if r.fits {
			return r.then
		}
	}
	return stepLose
}

// verdict is what a step means for a durable command. A fast one was answered already.
func verdict(s step, owner string, why *schemas.Error) schemas.Verdict {
	switch s {
	case stepReject, stepConflict: // the record of a conflict's key is the other command's
		return schemas.Verdict{Action: schemas.ActionDead, Reason: why}
	case stepDecline:
		if why != nil && why.Code == schemas.CodeLimitExceeded { // such as that of EVT, for hours: to wait for that is no failed attempt
			return schemas.Verdict{Action: schemas.ActionLimit, Reason: why}
		}
		return schemas.Verdict{Action: schemas.ActionRetry}
	case stepForward:
		return schemas.Verdict{Action: schemas.ActionForward, To: owner}
	case stepWait:
		return schemas.Verdict{Action: schemas.ActionFull, To: owner, Reason: why}
	case stepPass:
		return schemas.Verdict{Action: schemas.ActionDecline, Reason: why}
	default:
		return schemas.Verdict{Action: schemas.ActionDone}
	}
}

// finding holds the facts of a process that a sandbox ran while its worker was away.
type finding struct {
	unknown bool // there is no record of it that could be read
	ended   bool // its end is on record
	foreign bool // another worker accepted it, or a later owner of the thread
	partial bool // a part of its command's input was lost with the worker
}

// resume decides whether to go on with it. Otherwise it is killed, and reported as lost when no end is on record. A process that the
// sandbox does not hold is lost in any case: it may never have started, or an earlier sandbox may have run it.
func resume(f finding) bool { return f == finding{} }
