package session

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// sandboxAttempt is an attempt to create a sandbox and, once done is closed, the sandbox.
type sandboxAttempt struct {
	id      string
	life    life          // under the thread's mu
	took    time.Duration // to create it, or to fail; under the thread's mu
	done    chan struct{}
	sandbox sandbox.Sandbox
	err     error
}

// Sandbox returns the thread's sandbox. It creates one when there is none, or the last one has ended; callers that ask meanwhile
// wait for the same one. Errors: the provider's, those of a cold start, session_expired.
func (ss *Sessions) Sandbox(ctx context.Context, t *Thread) (sandbox.Sandbox, error) {
	t.mu.Lock()
	a := t.attempt
	if a == nil || a.ended() {
		if t.termination != nil {
			t.mu.Unlock()
			return nil, t.endingError()
		}
		a = ss.newAttempt(t)
		// In the background: others still wait for the sandbox when the command that asked first is killed.
		if !ss.background.Go(func() { ss.create(t, a) }) {
			t.mu.Unlock()
			return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker)
		}
		t.attempt = a
		ss.reportLocked(t, a, nil)
	}
	t.mu.Unlock()
	select {
	case <-a.done:
		return a.sandbox, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// StartError gives the error of a start that did not happen its code.
func StartError(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the sandbox was not ready in time: %w", err)
	case errors.Is(err, context.Canceled):
		return schemas.Errorf(schemas.CodeUnavailable, "the sandbox start was canceled: %w", err)
	default:
		return err
	}
}

func (ss *Sessions) newAttempt(t *Thread) *sandboxAttempt {
	start := ss.cfg.Timeouts.Start
	if t.Session.Image != "" {
		start = ss.cfg.Timeouts.Pull
	}
	if ms := t.Template.Session.StartTimeoutMS; ms > 0 {
		start = time.Duration(ms) * time.Millisecond
	}
	return &sandboxAttempt{
		id:   "s" + strings.ToLower(ulid.Make().String()),
		done: make(chan struct{}),
		life: newLife(time.Now(), bounds{pending: start, creating: start, ending: ss.grace(t) + ss.cfg.Timeouts.SandboxEnd, running: t.stored.Deadline}),
	}
}

// runningAttempt is a sandbox that an earlier incarnation of this worker left.
func (ss *Sessions) runningAttempt(t *Thread, sb sandbox.Sandbox) *sandboxAttempt {
	a := ss.newAttempt(t)
	a.id, a.sandbox = sb.ID(), sb
	a.life.state, a.life.due = schemas.SandboxRunning, a.life.bounds.running
	close(a.done)
	return a
}

// grace is the time between SIGTERM and SIGKILL when a request sets none.
func (ss *Sessions) grace(t *Thread) time.Duration {
	if ms := t.Template.Session.StopGraceMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return ss.cfg.StopGrace
}

// ended reports whether a new sandbox has to be created.
func (a *sandboxAttempt) ended() bool {
	select {
	case <-a.done:
	default:
		return false
	}
	if a.err != nil {
		return true
	}
	select {
	case <-a.sandbox.Done():
		return true
	default:
		return false
	}
}

// apply takes a sandbox's life one step on and reports the new state. It returns whether there was a step; err is why it failed.
func (ss *Sessions) apply(t *Thread, a *sandboxAttempt, o occurrence, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !a.life.apply(o, time.Now()) {
		return false
	}
	ss.reportLocked(t, a, err)
	return true
}

// reportLocked reports a sandbox's state. The caller holds t.mu.
func (ss *Sessions) reportLocked(t *Thread, a *sandboxAttempt, err error) {
	state := a.life.state
	if state == sandboxEnding {
		return
	}
	info := schemas.SandboxInfo{ID: a.id, Provider: t.Session.Provider, State: state, Workspace: t.Session.Workspace, StartMS: work.Millis(a.took)}
	if err != nil {
		info.Error = schemas.AsError(err)
	}
	u := update{event: ss.event(t, eventOf(state), info)}
	// A state that lasts a moment is not worth a write.
	if state != schemas.SandboxPending && state != schemas.SandboxCreating {
		u.edit = func(s *schemas.Session) {
			if s.Sandbox == a.id || state == schemas.SandboxRunning || state == schemas.SandboxFailed {
				s.State, s.Sandbox = state, a.id
			}
			s.Parked = s.Parked && state != schemas.SandboxRunning
		}
	}
	ss.updateLocked(t, u)
}

// create creates a sandbox and, the first time, runs its cold start. The attempt is done when the sandbox is ready for use.
func (ss *Sessions) create(t *Thread, a *sandboxAttempt) {
	defer close(a.done)
	t.mu.Lock()
	due, parking := a.life.due, t.parking
	t.mu.Unlock()
	ctx, cancel := context.WithDeadline(ss.creating, due)
	defer cancel()
	if parking != nil {
		// The sandbox before this one uses the workspace until it has ended.
		select {
		case <-parking:
		case <-ctx.Done():
		}
	}
	ss.apply(t, a, occurAsk, nil)
	begin := time.Now()
	sb, err := ss.provide(ctx, t, a)
	took := time.Since(begin)
	t.mu.Lock()
	a.took = took
	t.mu.Unlock()
	if err == nil {
		err = ss.coldStart(ctx, t, a, sb, took)
	}
	if err != nil {
		if sb != nil {
			ss.discard(sb)
		}
		a.err = err
		o := occurFail
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			o = occurOverdue
		}
		ss.apply(t, a, o, err)
		return
	}
	if !ss.apply(t, a, occurReady, nil) {
		t.mu.Lock()
		ending := a.life.state == sandboxEnding
		t.mu.Unlock()
		if !ending { // its end was requested, and did not wait for it
			ss.discard(sb)
			a.err = schemas.Errorf(schemas.CodeUnavailable, "sandbox %s of thread %s was ended before it was ready", a.id, t.ID)
			return
		}
	}
	a.sandbox = sb
	ss.background.Go(func() { ss.watch(t, a) })
}

// provide calls the provider, and does not wait for one that ignores its context. Errors: the provider's, those of the secrets,
// deadline_exceeded.
func (ss *Sessions) provide(ctx context.Context, t *Thread, a *sandboxAttempt) (sandbox.Sandbox, error) {
	spec, err := ss.spec(t, a)
	if err != nil {
		return nil, err
	}
	type created struct {
		sandbox sandbox.Sandbox
		err     error
	}
	result := make(chan created, 1)
	if !ss.background.Go(func() {
		sb, err := ss.cfg.Providers[t.Session.Provider].Create(ctx, spec)
		result <- created{sb, err}
	}) {
		return nil, context.Canceled
	}
	select {
	case c := <-result:
		return c.sandbox, c.err
	case <-ctx.Done():
	}
	// A provider's Create ends with its context. A sandbox that comes later is of no use.
	wait := time.NewTimer(ss.cfg.Timeouts.Gone)
	defer wait.Stop()
	select {
	case c := <-result:
		return c.sandbox, c.err
	case <-wait.C:
		ss.background.Go(func() {
			if c := <-result; c.sandbox != nil {
				ss.discard(c.sandbox)
			}
		})
		return nil, ctx.Err()
	}
}

// spec is the sandbox that the thread's template describes. Errors: those of the secrets.
func (ss *Sessions) spec(t *Thread, a *sandboxAttempt) (sandbox.Spec, error) {
	template := t.Template
	spec := sandbox.Spec{
		ID: a.id, Thread: t.ID, Workspace: t.Session.Workspace, Image: t.Session.Image, Rootfs: template.Rootfs, Network: template.Network,
		Limits: ss.limits(&template.Limits), Owner: ownershipOf(t).String(), Env: template.Env,
	}
	if ss.cfg.Secrets == nil || len(template.Secrets) == 0 {
		return spec, nil
	}
	secrets, err := ss.cfg.Secrets(template)
	if err != nil {
		return spec, err
	}
	spec.Env = make(map[string]string, len(template.Env)+len(secrets))
	maps.Copy(spec.Env, template.Env)
	maps.Copy(spec.Env, secrets)
	return spec, nil
}

// limits are a template's; a field that it leaves out is the worker's.
func (ss *Sessions) limits(of *schemas.TemplateLimits) sandbox.Limits {
	l := ss.cfg.Limits
	for _, f := range []struct {
		to   *int64
		from int64
	}{
		{&l.MemoryBytes, of.MemoryBytes}, {&l.PIDs, of.PIDs}, {&l.TmpBytes, of.TmpBytes},
		{&l.WorkspaceBytes, of.WorkspaceBytes}, {&l.WorkspaceFiles, of.WorkspaceFiles},
	} {
		if f.from != 0 {
			*f.to = f.from
		}
	}
	if of.CPUs != 0 {
		l.CPUs = of.CPUs
	}
	return l
}

// coldStart runs the hooks of a session's first sandbox on this worker. Errors: the critical hook's.
func (ss *Sessions) coldStart(ctx context.Context, t *Thread, a *sandboxAttempt, sb sandbox.Sandbox, took time.Duration) error {
	t.mu.Lock()
	warm := t.warm
	t.mu.Unlock()
	if warm {
		return nil
	}
	begin := time.Now()
	if _, err := ss.RunHooks(ctx, t, Occasion{Phase: schemas.PhaseColdStart, Sandbox: sb}); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return err
		}
		return schemas.Errorf(schemas.CodeOf(err), "the cold start of thread %s failed, and its sandbox was ended: %w", t.ID, err)
	}
	t.mu.Lock()
	t.warm = true
	t.mu.Unlock()
	ss.update(t, update{event: ss.event(t, schemas.TypeColdStartFinished, schemas.ColdStart{
		Sandbox: a.id, SandboxMS: work.Millis(took), HooksMS: work.Millis(time.Since(begin)), Epoch: t.Session.Epoch,
	})})
	return nil
}

// discard ends a sandbox that no run has used.
func (ss *Sessions) discard(sb sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ss.background.Context()), ss.cfg.Timeouts.SandboxEnd)
	defer cancel()
	_ = sb.Terminate(ctx, 0) // its error is ctx's: the supervisor still ends with the worker
}

// watch reports a sandbox that ends by itself.
func (ss *Sessions) watch(t *Thread, a *sandboxAttempt) {
	select {
	case <-a.sandbox.Done():
		ss.apply(t, a, occurEnd, nil)
	case <-ss.background.Context().Done():
	}
}

// endSandbox ends the thread's sandbox, if it has one.
func (ss *Sessions) endSandbox(ctx context.Context, t *Thread, grace time.Duration) {
	t.mu.Lock()
	a := t.attempt
	t.mu.Unlock()
	if a == nil {
		return
	}
	ss.apply(t, a, occurStop, nil)
	select {
	case <-a.done:
	case <-ctx.Done():
		ss.apply(t, a, occurOverdue, nil) // create ends it when it comes
		return
	}
	o := occurGone
	if a.sandbox != nil && a.sandbox.Terminate(ctx, grace) != nil {
		o = occurOverdue // its error is ctx's: the supervisor still ends with the worker
	}
	ss.apply(t, a, o, nil)
}
