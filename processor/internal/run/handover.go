package run

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Handover is what one incarnation of a worker alone knows when it loses its lease, for the next one in the same program: the runs that it
// accepted and had not started, since no record says that they never ran, and the input that it had not given to its processes, since no
// record holds input. Its zero value is empty.
type Handover struct {
	mu     sync.Mutex
	runs   map[string]*Run   // not started, by key
	inputs map[string][]byte // the whole input of a command that has started, by key
}

// add keeps what the next incarnation needs to go on with a run that has no end on record. why is how its start failed; nil when only the
// worker ended.
func (ho *Handover) add(run *Run, why error) {
	next := run.anew()
	if next != nil && next.why == nil {
		next.why = why
	}
	ho.mu.Lock()
	defer ho.mu.Unlock()
	if ho.runs == nil {
		ho.runs, ho.inputs = make(map[string]*Run), make(map[string][]byte)
	}
	switch key := key(run.thread.Tenant, run.process); {
	case next != nil:
		ho.runs[key] = next
	case run.input.owes():
		ho.inputs[key] = run.exec.Stdin
	}
}

// input returns the whole input of a started command, nil when it had all been given or is not known.
func (ho *Handover) input(accepted *schemas.Event) []byte {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	return ho.inputs[key(accepted.Tenant, accepted.Process)]
}

// find returns the run of which this is the acceptance, nil for none.
func (ho *Handover) find(accepted *schemas.Event) *Run {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	if run := ho.runs[key(accepted.Tenant, accepted.Process)]; run != nil && run.accepted.ID == accepted.ID {
		return run
	}
	return nil
}

// Clear forgets all.
func (ho *Handover) Clear() {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	clear(ho.runs)
	clear(ho.inputs)
}

// ask notes the sandbox that gets the command; empty when the last one has certainly not started it.
func (run *Run) ask(sandbox string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.unknown = run.unknown || (run.asked != "" && sandbox != "")
	run.asked = sandbox
}

// anew is the run as it was accepted, with the signals and the kill that came since; nil when its process may have run, other than in the
// sandbox that was asked last.
func (run *Run) anew() *Run {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.proc != nil || run.unknown || run.ended != nil {
		return nil
	}
	return &Run{
		thread: run.thread, process: run.process, exec: run.exec, message: run.message, user: run.user, origin: run.origin,
		fingerprint: run.fingerprint, epoch: run.epoch, args: run.args, argsTruncated: run.argsTruncated, accepted: run.accepted,
		entered: run.entered, firstSeq: run.firstSeq, seq: run.seq, attempt: run.attempt, input: newInput(run.exec), reruns: run.reruns, why: run.why,
		inboxes: slices.Clone(run.inboxes), signals: slices.Clone(run.signals), size: run.size, asked: run.asked,
		killed: run.killed && !run.spared, grace: run.grace,
	}
}

// unasked reports whether the process is certainly not in the sandbox that was asked to start it: the thread has that sandbox again, which
// handles the requests of an earlier connection before those of a later one.
func (run *Run) unasked(ctx context.Context, t *session.Thread) bool {
	if run.asked == "" {
		return true
	}
	sb, ok := t.Standing().(sandbox.Attached)
	if !ok || sb.ID() != run.asked {
		return false
	}
	held, err := sb.Processes(ctx)
	return err == nil && !slices.ContainsFunc(held, func(h sandbox.ProcessState) bool { return h.ID == run.process })
}

// TakeUp prepares to start a process that an earlier incarnation in this program accepted and never started. It counts as running from
// here on; then starts it. then is nil when the process may have run. Errors: conflict when another worker was first, unavailable.
func (rs *Runs) TakeUp(ctx context.Context, accepted *schemas.Event) (then func(), err error) {
	kept := rs.cfg.Handover.find(accepted)
	if kept == nil {
		return nil, nil
	}
	claim, err := rs.sessions.Claim(ctx, accepted.Tenant, accepted.Thread, session.Request{Session: accepted.Session, Existing: true, Origin: kept.origin})
	switch {
	case err == nil && claim.Thread == nil:
		err = schemas.Errorf(schemas.CodeUnavailable, "worker %s was away before it started process %s, and worker %s has the thread now: send it again",
			rs.publisher.Worker, accepted.Process, claim.Owner)
	case err != nil && !schemas.CodeOf(err).Final() && !session.Unreadable(err):
		return nil, err
	}
	if err != nil {
		if _, err := rs.recorder.recordAbsent(ctx, accepted, schemas.TypeProcessRejected, schemas.AsError(err)); err != nil {
			return nil, err
		}
		return func() {}, nil
	}
	// The claim came first: until then another worker may have recorded the process as lost, and run it again.
	last, err := rs.cfg.Records.Last(ctx, accepted.Tenant, accepted.Thread, accepted.Process)
	if err != nil {
		return nil, err
	}
	if last.ID != accepted.ID || !kept.unasked(ctx, claim.Thread) {
		return nil, nil
	}
	run := kept.anew()
	run.thread, run.accepted, run.seq, run.asked = claim.Thread, last, last.Seq, ""
	if run.message != nil {
		run.turn = rs.newTurn(run)
	}
	rs.hold(run)
	return func() {
		rs.ending.Go(func() { rs.runToEnd(run, func(result *schemas.Result) error { return rs.execute(run, result) }) })
	}, nil
}
