package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// process is a process of a service.
type process interface {
	ID() string
	// Started is closed when it runs, Ended when it has ended.
	Started() <-chan struct{}
	Ended() <-chan struct{}
	// Failure is why it has ended.
	Failure() *schemas.Error
	// Kill ends the whole tree: SIGTERM, the grace, SIGKILL.
	Kill(grace time.Duration)
}

// host is what a supervisor needs of the worker.
type host interface {
	// prepare names a new process, which launch starts. Errors of launch: session_expired when the service ends with its session; any other
	// is a failed start.
	prepare() (id string, launch launcher)
	// probe checks the health once, and heeds ctx.
	probe(ctx context.Context) error
	// over returns why the service ends with its session or its worker, nil when it does not.
	over() error
	// record stores the service and reports a new state. Errors: lost when it is another worker's by now; any other may pass.
	record(ctx context.Context, s *schemas.Service) error
}

type launcher func(ctx context.Context) (process, error)

// Bounds of a supervisor.
const (
	maxProcesses = 8           // of a service that are named in its record
	recordRetry  = time.Second // after a record that could not be stored
)

// supervisor runs one service from its start to its end.
type supervisor struct {
	host    host
	machine machine
	process process // the newest; nil before the first
	stopped chan struct{}
	stop    func() // closes stopped; may be called repeatedly
	left    chan struct{}
	leave   func() // closes left; may be called repeatedly
	done    chan struct{}

	// Of run alone.
	begun    time.Time // of the newest process
	stepped  time.Time // at the newest occurrence: a state begins when the delay after it does
	timer    *time.Timer
	prepared launcher        // of a process that is not on record yet; nil for none
	started  <-chan struct{} // of the newest process; nil once that is known
	ended    <-chan struct{}
	probed   chan error // nil while no probe runs
	endProbe context.CancelFunc
	killed   bool // by the supervisor
	unsaved  bool

	mu      sync.Mutex
	service schemas.Service
	waiting []waiter
}

// waiter is a caller that waits for a service to reach a state.
type waiter struct {
	in    func(schemas.ServiceState) bool
	reply func(*schemas.Service)
}

// newSupervisor returns the supervisor of a new service, or of one on record with its process; nil when that has ended.
func newSupervisor(h host, s schemas.Service, p process) *supervisor {
	sv := &supervisor{
		host: h, service: s, process: p, stopped: make(chan struct{}), done: make(chan struct{}),
		machine: machine{
			clocks: clocksOf(&s.Spec), checked: s.Spec.Health != nil, state: s.State, alive: s.State != "", starts: s.Starts, restarts: s.RestartAttempts,
		},
	}
	sv.stop = sync.OnceFunc(func() { close(sv.stopped) })
	sv.left = make(chan struct{})
	sv.leave = sync.OnceFunc(func() { close(sv.left) })
	if p != nil {
		sv.ended = p.Ended()
	}
	return sv
}

// run supervises the service until it has ended, or ctx ends, or leave is called: then its process stays, and its record too. first is what begins it.
func (sv *supervisor) run(ctx context.Context, first occurrence) {
	defer close(sv.done)
	sv.begun, sv.timer = time.Now(), time.NewTimer(time.Hour)
	defer sv.timer.Stop()
	defer func() { sv.cancelProbe() }()
	stopped := sv.stopped
	err := sv.occur(ctx, first, nil)
	for err == nil && (!sv.machine.state.Ended() || sv.unsaved) {
		select {
		case <-sv.started:
			sv.started, sv.begun = nil, time.Now()
			err = sv.occur(ctx, occurLaunch, nil)
		case <-sv.ended:
			sv.started, sv.ended = nil, nil
			err = sv.occur(ctx, occurEnd, sv.process.Failure())
		case why := <-sv.probed:
			sv.cancelProbe()
			if why == nil {
				err = sv.occur(ctx, occurHealthy, nil)
			} else {
				err = sv.occur(ctx, occurSick, schemas.AsError(why))
			}
		case <-sv.timer.C:
			if sv.prepared != nil {
				err = sv.launch(ctx, sv.machine.state, nil)
			} else {
				err = sv.occur(ctx, occurWake, nil)
			}
		case <-stopped:
			stopped = nil
			err = sv.occur(ctx, occurStop, nil)
		case <-sv.left:
			return
		case <-ctx.Done():
			return
		}
	}
}

// occur takes the life one step on, does what follows, and records the outcome. why is the failure that has occurred. Errors: lost.
func (sv *supervisor) occur(ctx context.Context, o occurrence, why *schemas.Error) error {
	if o == occurEnd {
		sv.cancelProbe()
		if sv.killed {
			why = nil // why it was killed says more than how it ended
		}
		sv.machine.hopeless = why != nil && isHopeless(why.Code)
		if over := sv.host.over(); over != nil && sv.machine.state != schemas.ServiceStopping {
			sv.machine.state, why = schemas.ServiceStopping, schemas.AsError(over)
		}
	}
	before := sv.machine.state
	sv.stepped = time.Now()
	next := sv.machine.next(o, sv.stepped)
	switch next.do {
	case doLaunch:
		sv.prepare()
		return sv.launch(ctx, before, why)
	case doProbe:
		sv.startProbe(ctx)
	case doKill:
		if sv.prepared != nil {
			sv.prepared = nil
			return sv.occur(ctx, occurEnd, nil)
		}
		sv.cancelProbe()
		sv.killed = true
		sv.process.Kill(sv.machine.clocks.grace)
	}
	if next.wake.IsZero() {
		sv.timer.Stop()
	} else {
		sv.timer.Reset(time.Until(next.wake))
	}
	return sv.note(ctx, before, why)
}

// isHopeless reports whether a start that failed would fail again: there is no such program, or it is not allowed.
func isHopeless(c schemas.Code) bool {
	return c == schemas.CodeInvalidArgument || c == schemas.CodePolicyDenied || c == schemas.CodePermissionDenied
}

func (sv *supervisor) prepare() {
	sv.timer.Stop()
	id, launch := sv.host.prepare()
	sv.prepared = launch
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.service.Processes = append(sv.service.Processes[max(0, len(sv.service.Processes)-maxProcesses+1):], id)
}

// launch starts the process that is prepared, once it is on record: when the worker is killed in between, its next incarnation must find
// the process, or start another one beside it. Errors: lost.
func (sv *supervisor) launch(ctx context.Context, before schemas.ServiceState, why *schemas.Error) error {
	if err := sv.note(ctx, before, why); err != nil {
		return err
	}
	if sv.unsaved {
		sv.timer.Reset(recordRetry)
		return nil
	}
	p, err := sv.prepared(ctx)
	sv.prepared = nil
	if err != nil {
		if errors.Is(err, schemas.ErrSessionExpired) {
			sv.machine.state = schemas.ServiceStopping
		}
		return sv.occur(ctx, occurEnd, schemas.AsError(err))
	}
	sv.process, sv.started, sv.ended, sv.killed = p, p.Started(), p.Ended(), false
	return nil
}

func (sv *supervisor) startProbe(ctx context.Context) {
	ctx, sv.endProbe = context.WithTimeout(ctx, sv.machine.clocks.probe)
	probed := make(chan error, 1)
	sv.probed = probed
	go func() { probed <- sv.host.probe(ctx) }()
}

// cancelProbe ends the probe that runs, and forgets its outcome.
func (sv *supervisor) cancelProbe() {
	if sv.probed != nil {
		sv.endProbe()
		sv.probed = nil
	}
}

// note records what has changed, and answers those that waited for it. Errors: lost.
func (sv *supervisor) note(ctx context.Context, before schemas.ServiceState, why *schemas.Error) error {
	sv.mu.Lock()
	s := &sv.service
	changed := s.State != sv.machine.state || before != sv.machine.state
	counted := s.Starts != sv.machine.starts
	if why != nil {
		s.Error = why
	}
	if changed {
		s.State, s.Since = sv.machine.state, sv.stepped.UTC()
		if s.State == schemas.ServiceRunning {
			s.HealthyMS, s.Error = float64(time.Since(sv.begun).Microseconds())/1000, nil
		}
	}
	s.Starts, s.RestartAttempts = sv.machine.starts, sv.machine.restarts
	current := *s
	sv.mu.Unlock()
	if changed || counted || sv.unsaved {
		err := sv.host.record(ctx, &current)
		if errors.Is(err, schemas.ErrLost) {
			return err
		}
		if sv.unsaved = err != nil; sv.unsaved && current.State.Ended() {
			sv.timer.Reset(recordRetry)
		}
	}
	sv.answer(&current)
	return nil
}

// answer replies to those that waited for the state.
func (sv *supervisor) answer(s *schemas.Service) {
	sv.mu.Lock()
	var due []waiter
	rest := sv.waiting[:0]
	for _, w := range sv.waiting {
		if w.in(s.State) {
			due = append(due, w)
		} else {
			rest = append(rest, w)
		}
	}
	sv.waiting = rest
	sv.mu.Unlock()
	for _, w := range due {
		w.reply(s)
	}
}

// maxWaiting is how many callers may wait for one service.
const maxWaiting = 256

// await calls reply once the service is in such a state, now or later. It reports false when too many wait.
func (sv *supervisor) await(in func(schemas.ServiceState) bool, reply func(*schemas.Service)) bool {
	sv.mu.Lock()
	if len(sv.waiting) >= maxWaiting {
		sv.mu.Unlock()
		return false
	}
	sv.waiting = append(sv.waiting, waiter{in, reply})
	current := sv.service
	sv.mu.Unlock()
	sv.answer(&current)
	return true
}

// ends reports whether the service has ended, or is about to: it was stopped, or its session has ended.
func (sv *supervisor) ends() bool {
	select {
	case <-sv.stopped:
		return true
	default:
		return sv.current().State.Ended() || sv.host.over() != nil
	}
}

// current is the service as it is now.
func (sv *supervisor) current() schemas.Service {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.service
}
