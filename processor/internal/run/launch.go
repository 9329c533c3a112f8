package run

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/schemas"
)

// Launcher runs commands of the worker's own in its threads. They are processes as any other: on record, in the log, and resumed after
// the worker was killed.
type Launcher struct {
	acceptor *Acceptor
	runs     *Runs
}

// NewLauncher returns a launcher whose commands are decided as those of callers.
func NewLauncher(ac *Acceptor) *Launcher { return &Launcher{acceptor: ac, runs: ac.runs} }

// Launch accepts a command for a thread's session under a new key, and returns its process before that has started. Errors: session_expired, policy_denied,
// unavailable.
func (l *Launcher) Launch(ctx context.Context, t *session.Thread, key string, exec *schemas.Exec, origin schemas.Origin) (*Process, error) {
	if t.Ending() || l.acceptor.sessions.Find(t.Tenant, t.ID) != t {
		return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended", t.Session.ID, t.ID)
	}
	if policy := l.acceptor.cfg.Policy; policy != nil {
		if err := policy.Check(t.Template, exec.Command, exec.Args); err != nil {
			return nil, err
		}
	}
	d := &schemas.Delivery{Tenant: t.Tenant, Thread: t.ID, Op: schemas.OpExec, Attempt: 1}
	d.SetCommand(&schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: t.ID, Session: t.Session.ID, Key: key, Exec: exec, Origin: origin,
	})
	accepted := l.acceptor.launches.begin(d)
	l.acceptor.HandleCommand(ctx, d)
	if run := accepted(); run != nil { // it may have ended by now
		return &Process{run, run.observe()}, nil
	}
	return nil, schemas.Errorf(schemas.CodeUnavailable, "process %s of thread %s could not be recorded, or there is no room for it (see --max-processes and --tenant-sandboxes)", d.Process, d.Thread)
}

// launches are the commands of the worker's own that are being decided, by key.
type launches struct{ deciding sync.Map }

// begin has the run of a command remembered until end is called, which returns it; nil when the command was not accepted.
func (ls *launches) begin(d *schemas.Delivery) (end func() *Run) {
	k, run := key(d.Tenant, d.Process), new(atomic.Pointer[Run])
	ls.deciding.Store(k, run)
	return func() *Run {
		ls.deciding.Delete(k)
		return run.Load()
	}
}

// accepted remembers a run if it is one of a command that was begun.
func (ls *launches) accepted(run *Run) {
	if of, ok := ls.deciding.Load(key(run.thread.Tenant, run.process)); ok {
		of.(*atomic.Pointer[Run]).Store(run)
	}
}

// Find returns a process that has not ended, nil for none.
func (l *Launcher) Find(tenant, process string) *Process {
	run := l.runs.find(tenant, process)
	if run == nil {
		return nil
	}
	return &Process{run, run.observe()}
}

// Process is a process that another part of the worker watches.
type Process struct {
	run *Run
	*observation
}

// observation is what is reported of a run. Its channels are closed once.
type observation struct {
	started, ended chan struct{}
	result         *schemas.Result // valid once ended is closed
}

// ID is the process id.
func (p *Process) ID() string { return p.run.process }

// Started is closed when the process runs.
func (p *Process) Started() <-chan struct{} { return p.started }

// Ended is closed when the process has ended, and its end is on record.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure is how the process ended, once it has.
func (p *Process) Failure() *schemas.Error {
	r := p.result
	if r.Error != nil {
		return r.Error
	}
	why := fmt.Sprintf("with exit code %d", r.ExitCode)
	if r.Signal != 0 {
		why = fmt.Sprintf("by signal %d", r.Signal)
	}
	return schemas.Errorf(schemas.CodeUnavailable, "process %s ended %s (%s)", p.run.process, why, cmp.Or(r.Reason, schemas.ReasonLost))
}

// Kill ends the whole tree: SIGTERM, the grace, SIGKILL.
func (p *Process) Kill(grace time.Duration) { p.run.Kill(grace) }

// observe returns what is reported of the run from here on.
func (run *Run) observe() *observation {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.observed == nil {
		run.observed = &observation{started: make(chan struct{}), ended: make(chan struct{})}
		if run.proc != nil {
			close(run.observed.started)
		}
	}
	return run.observed
}

// reportEnd reports the end to those that observe the run, now or later.
func (run *Run) reportEnd(result *schemas.Result) {
	o := run.observe()
	o.result = result
	close(o.ended)
}
