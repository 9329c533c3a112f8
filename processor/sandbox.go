package processor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// making is a sandbox, or the attempt to make one.
type making struct {
	id   string
	life life          // under the thread's mu
	took time.Duration // to make it, or to fail; under the thread's mu
	done chan struct{}
	sb   sandbox.Sandbox
	err  error
}

// sandbox is the thread's sandbox, made now where there is none or the last one has ended. All who ask meanwhile wait for
// the same one. Errors: the provider's, those of a cold start, session_expired.
func (w *Worker) sandbox(ctx context.Context, t *thread) (sandbox.Sandbox, error) {
	t.mu.Lock()
	m := t.making
	if m == nil || m.ended() {
		if t.ending != nil {
			t.mu.Unlock()
			return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s is being ended", t.session.ID, t.thread)
		}
		m = w.newMaking(t)
		// Apart from the command that asks first: when that is killed, others still wait for the sandbox.
		if !w.errands.do(func() { w.makeSandbox(t, m) }) {
			t.mu.Unlock()
			return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", w.cfg.Worker)
		}
		t.making = m
		w.toldLocked(t, m, nil)
	}
	t.mu.Unlock()
	select {
	case <-m.done:
		return m.sb, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newMaking is a sandbox that is asked for.
func (w *Worker) newMaking(t *thread) *making {
	start := w.creation(t)
	if ms := t.template.Session.StartTimeoutMS; ms > 0 {
		start = time.Duration(ms) * time.Millisecond
	}
	return &making{
		id:   "s" + strings.ToLower(ulid.Make().String()),
		done: make(chan struct{}),
		life: newLife(time.Now(), bounds{pending: start, creating: start, ending: w.grace(t) + w.cfg.patience.end, running: t.now.Deadline}),
	}
}

// found is a sandbox that an earlier incarnation of this worker left, and that runs.
func (w *Worker) found(t *thread, sb sandbox.Sandbox) *making {
	m := w.newMaking(t)
	m.id, m.sb = sb.ID(), sb
	m.life.state, m.life.due = schemas.SandboxRunning, m.life.bounds.running
	close(m.done)
	return m
}

// grace is the time between SIGTERM and SIGKILL where nobody says.
func (w *Worker) grace(t *thread) time.Duration {
	if ms := t.template.Session.StopGraceMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return w.cfg.StopGrace
}

// ended says whether a new sandbox has to be made.
func (m *making) ended() bool {
	select {
	case <-m.done:
	default:
		return false
	}
	if m.err != nil {
		return true
	}
	select {
	case <-m.sb.Done():
		return true
	default:
		return false
	}
}

// occur takes a sandbox's life a step on and has that told. The error is why it failed.
func (w *Worker) occur(t *thread, m *making, o occurrence, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !m.life.occur(o, time.Now()) {
		return false
	}
	w.toldLocked(t, m, err)
	return true
}

// toldLocked has a sandbox's state told. t.mu is held.
func (w *Worker) toldLocked(t *thread, m *making, err error) {
	state := m.life.state
	if state == sandboxEnding {
		return
	}
	info := schemas.SandboxInfo{ID: m.id, Provider: t.session.Provider, State: state, Workspace: t.session.Workspace, StartMS: millis(m.took)}
	if err != nil {
		info.Error = schemas.AsError(err)
	}
	n := note{event: w.event(eventOf(state), t.tenant, t.thread, t.session.ID, "", info)}
	// What is gone in a moment is not worth a write.
	if state != schemas.SandboxPending && state != schemas.SandboxCreating {
		n.edit = func(s *schemas.Session) {
			if s.Sandbox == m.id || state == schemas.SandboxRunning || state == schemas.SandboxFailed {
				s.State, s.Sandbox = state, m.id
			}
			s.Parked = s.Parked && state != schemas.SandboxRunning
		}
	}
	w.noteLocked(t, n)
}

// makeSandbox makes a sandbox and, the first time, gives it its cold start. Whoever waits for it is told when it can be used.
func (w *Worker) makeSandbox(t *thread, m *making) {
	defer close(m.done)
	t.mu.Lock()
	due, parking := m.life.due, t.parking
	t.mu.Unlock()
	ctx, cancel := context.WithDeadline(w.creating, due)
	defer cancel()
	if parking != nil {
		// The one before has the workspace until it is gone.
		select {
		case <-parking:
		case <-ctx.Done():
		}
	}
	w.occur(t, m, occurAsk, nil)
	begin := time.Now()
	sb, err := w.create(ctx, t, m)
	made := time.Since(begin)
	t.mu.Lock()
	m.took = made
	t.mu.Unlock()
	if err == nil {
		err = w.coldStart(ctx, t, m, sb, made)
	}
	if err != nil {
		if sb != nil {
			w.giveBack(sb)
		}
		m.err = err
		o := occurFail
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			o = occurOverdue
		}
		w.occur(t, m, o, err)
		return
	}
	if !w.occur(t, m, occurReady, nil) {
		t.mu.Lock()
		ending := m.life.state == sandboxEnding
		t.mu.Unlock()
		if !ending { // whoever wished for its end has not waited for it
			w.giveBack(sb)
			m.err = schemas.Errorf(schemas.CodeUnavailable, "sandbox %s of thread %s was ended before it was ready", m.id, t.thread)
			return
		}
	}
	m.sb = sb
	w.errands.do(func() { w.watch(t, m) })
}

// create has the sandbox made, and gives up on a provider that does not answer in time. Errors: the provider's, those of the
// secrets, deadline_exceeded.
func (w *Worker) create(ctx context.Context, t *thread, m *making) (sandbox.Sandbox, error) {
	spec, err := w.specOf(t, m.id, t.session.Workspace)
	if err != nil {
		return nil, err
	}
	type made struct {
		sb  sandbox.Sandbox
		err error
	}
	got := make(chan made, 1)
	if !w.errands.do(func() {
		sb, err := w.cfg.Providers[t.session.Provider].Create(ctx, spec)
		got <- made{sb, err}
	}) {
		return nil, context.Canceled
	}
	select {
	case g := <-got:
		return g.sb, g.err
	case <-ctx.Done():
	}
	// A provider's Create ends with its context. What one makes all the same is of no use to anybody.
	wait := time.NewTimer(w.cfg.patience.gone)
	defer wait.Stop()
	select {
	case g := <-got:
		return g.sb, g.err
	case <-wait.C:
		w.errands.do(func() {
			if g := <-got; g.sb != nil {
				w.giveBack(g.sb)
			}
		})
		return nil, ctx.Err()
	}
}

// giveBack ends a sandbox that nobody got to use.
func (w *Worker) giveBack(sb sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.bg), w.cfg.patience.end)
	defer cancel()
	_ = sb.Terminate(ctx, 0) // its error is ctx's: the supervisor ends with the worker all the same
}

// watch tells of a sandbox that ends by itself.
func (w *Worker) watch(t *thread, m *making) {
	select {
	case <-m.sb.Done():
		w.occur(t, m, occurEnd, nil)
	case <-w.bg.Done():
	}
}

// endSandbox ends the thread's sandbox, if it has one.
func (w *Worker) endSandbox(ctx context.Context, t *thread, grace time.Duration) {
	t.mu.Lock()
	m := t.making
	t.mu.Unlock()
	if m == nil {
		return
	}
	w.occur(t, m, occurWish, nil)
	select {
	case <-m.done:
	case <-ctx.Done():
		w.occur(t, m, occurOverdue, nil) // makeSandbox ends it when it comes
		return
	}
	o := occurGone
	if m.sb != nil && m.sb.Terminate(ctx, grace) != nil {
		o = occurOverdue // its error is ctx's: the supervisor ends with the worker all the same
	}
	w.occur(t, m, o, nil)
}

// coldStart runs the hooks of a session's first sandbox on this worker. Errors: the critical hook's.
func (w *Worker) coldStart(ctx context.Context, t *thread, m *making, sb sandbox.Sandbox, made time.Duration) error {
	t.mu.Lock()
	warm := t.warm
	t.mu.Unlock()
	if warm {
		return nil
	}
	begin := time.Now()
	if _, err := w.runHooks(ctx, t, occasion{phase: schemas.PhaseColdStart, sb: sb}); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return err
		}
		return schemas.Errorf(schemas.CodeOf(err), "the cold start of thread %s failed, and its sandbox was given back: %w", t.thread, err)
	}
	t.mu.Lock()
	t.warm = true
	t.mu.Unlock()
	w.note(t, note{event: w.event(schemas.TypeColdStartFinished, t.tenant, t.thread, t.session.ID, "", schemas.ColdStart{
		Sandbox: m.id, SandboxMS: millis(made), HooksMS: millis(time.Since(begin)), Epoch: t.session.Epoch,
	})})
	return nil
}
