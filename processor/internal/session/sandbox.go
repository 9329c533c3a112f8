package session

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// sandboxes create the sandboxes of threads, run the hooks in them, park them and end them.
type sandboxes struct {
	providers  map[string]sandbox.Provider
	places     *Places
	limits     sandbox.Limits // for what a template leaves out
	network    schemas.Network
	secrets    func(t *schemas.Template) (map[string]string, error)
	allowed    func(tenant string, t *schemas.Template, image string) error
	hooks      Hooks // nil: none run
	stopGrace  time.Duration
	timeouts   work.Timeouts
	publisher  *publisher.Publisher
	background *work.Background
	entries    *entries
	drainSlots chan struct{} // shared with Sessions

	creating     context.Context // of sandboxes that are being created
	stopCreating context.CancelFunc
}

// sandboxAttempt is an attempt to create a sandbox and, once done is closed, the sandbox.
type sandboxAttempt struct {
	id      string
	origin  schemas.Origin // of the command for which it is created
	adopted bool           // an earlier incarnation of this worker created it
	life    life           // under the thread's mu
	took    time.Duration  // to create it, or to fail; under the thread's mu
	home    string         // the workspace as its processes see it; under the thread's mu
	done    chan struct{}
	sandbox sandbox.Sandbox
	err     error

	supplying sync.Mutex
	supplied  bool // an adopted one has its secrets
}

// get returns the thread's sandbox. It creates one when there is none, or the last one has ended; callers that ask meanwhile
// wait for the same one. Errors: the provider's, those of a cold start, session_expired.
func (sbs *sandboxes) get(ctx context.Context, t *Thread, origin schemas.Origin) (sandbox.Sandbox, error) {
	t.mu.Lock()
	a, err := sbs.requestLocked(t, origin)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		if a.err != nil {
			return nil, a.err
		}
		return a.sandbox, sbs.supply(t, a)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// request is get, without the wait: it returns the sandbox's state.
func (sbs *sandboxes) request(t *Thread) (schemas.SandboxInfo, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, err := sbs.requestLocked(t, schemas.Origin{})
	switch {
	case err != nil:
		return schemas.SandboxInfo{}, err
	case a.life.state == sandboxEnding:
		return schemas.SandboxInfo{}, t.endingError()
	}
	return schemas.SandboxInfo{ID: a.id, State: a.life.state}, nil
}

// requestLocked returns the thread's sandbox, which may still be created, and begins to create one when there is none, or the last one has
// ended. The caller holds t.mu. Errors: session_expired, unavailable; limit_exceeded and pool_exhausted without a place for it.
func (sbs *sandboxes) requestLocked(t *Thread, origin schemas.Origin) (*sandboxAttempt, error) {
	if a := t.attempt; a != nil && !a.ended() {
		return a, nil
	}
	if t.termination != nil {
		return nil, t.endingError()
	}
	if err := t.takePlaceLocked(false); err != nil {
		return nil, err
	}
	// In the background: others still wait for the sandbox when the command that asked first is killed.
	if a := sbs.beginLocked(sbs.creating, t, origin); a != nil {
		return a, nil
	}
	return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", sbs.publisher.Worker)
}

// beginLocked begins to create the thread's sandbox. It returns nil when the worker has ended. The caller holds t.mu.
func (sbs *sandboxes) beginLocked(ctx context.Context, t *Thread, origin schemas.Origin) *sandboxAttempt {
	a := sbs.newAttempt(t)
	a.origin = origin
	if !sbs.background.Go(func() { sbs.create(ctx, t, a) }) {
		return nil
	}
	t.attempt = a
	sbs.reportLocked(t, a, nil)
	return a
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

// notStarted is the answer of a start that failed. It has the session unless the thread is being given up: then its caller asks the next
// owner.
func notStarted(ss *Sessions, t *Thread, err error) schemas.SessionReply {
	reply := schemas.SessionReply{Error: schemas.AsError(StartError(err))}
	ss.mu.Lock()
	t.mu.Lock()
	stays := !ss.leaving && t.termination == nil
	t.mu.Unlock()
	ss.mu.Unlock()
	if stays && ss.background.Context().Err() == nil {
		current := ss.Info(t)
		reply.Session = &current
	}
	return reply
}

func (sbs *sandboxes) newAttempt(t *Thread) *sandboxAttempt {
	start := sbs.timeouts.Start
	if t.Session.Image != "" {
		start = sbs.timeouts.Pull
	}
	if ms := t.Template.Session.StartTimeoutMS; ms > 0 {
		start = time.Duration(ms) * time.Millisecond
	}
	return &sandboxAttempt{
		id:   "s" + strings.ToLower(ulid.Make().String()),
		done: make(chan struct{}),
		life: newLife(time.Now(), bounds{pending: start, creating: start, ending: sbs.grace(t) + sbs.timeouts.SandboxEnd, running: t.stored.Deadline}),
	}
}

// runningAttempt is a sandbox that an earlier incarnation of this worker left.
func (sbs *sandboxes) runningAttempt(t *Thread, sb sandbox.Sandbox) *sandboxAttempt {
	a := sbs.newAttempt(t)
	a.id, a.sandbox, a.home, a.adopted = sb.ID(), sb, sb.Home(), true
	a.life.state, a.life.due = schemas.SandboxRunning, a.life.bounds.running
	close(a.done)
	return a
}

// grace is the time between SIGTERM and SIGKILL when a request sets none.
func (sbs *sandboxes) grace(t *Thread) time.Duration {
	if ms := t.Template.Session.StopGraceMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return sbs.stopGrace
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

// reportLocked reports a sandbox's state. The caller holds t.mu.
func (sbs *sandboxes) reportLocked(t *Thread, a *sandboxAttempt, err error) {
	state := a.life.state
	if state == sandboxEnding {
		return
	}
	t.bound = t.bound || state == schemas.SandboxRunning
	info := schemas.SandboxInfo{ID: a.id, Provider: t.Session.Provider, State: state, Workspace: a.home, StartMS: work.Millis(a.took)}
	if err != nil {
		info.Error = schemas.AsError(err)
	}
	u := update{event: sbs.entries.event(t, a.origin, eventOf(state), info), end: state.Final()}
	// A state that lasts a moment is not worth a write.
	if state != schemas.SandboxPending && state != schemas.SandboxCreating {
		u.edit = func(s *schemas.Session) {
			if s.Sandbox == a.id || state == schemas.SandboxRunning || state == schemas.SandboxFailed {
				s.State, s.Sandbox = state, a.id
			}
			s.Parked = s.Parked && state != schemas.SandboxRunning
			s.Bound = s.Bound || state == schemas.SandboxRunning
		}
	}
	sbs.entries.updateLocked(t, u)
}

// create creates a sandbox and, the first time, runs its cold start. The attempt is done when the sandbox is ready for use.
func (sbs *sandboxes) create(ctx context.Context, t *Thread, a *sandboxAttempt) {
	t.mu.Lock()
	due, parking := a.life.due, t.parking
	t.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	if parking != nil {
		// The sandbox before this one uses the workspace until it has ended.
		select {
		case <-parking:
		case <-ctx.Done():
		}
	}
	sbs.apply(t, a, occurAsk, nil)
	begin := time.Now()
	sb, err := sbs.provide(ctx, t, a)
	took := time.Since(begin)
	t.mu.Lock()
	a.took = took
	if err == nil {
		a.home = sb.Home()
	}
	t.mu.Unlock()
	if err == nil {
		err = sbs.coldStart(ctx, t, a, sb, took)
	}
	if err != nil {
		if sb != nil {
			sbs.discard(sb)
		}
		o := occurFail
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			o = occurOverdue
		}
		sbs.fail(t, a, o, err)
		return
	}
	t.mu.Lock()
	wanted := sbs.applyLocked(t, a, occurReady, nil) || a.life.state == sandboxEnding
	if wanted {
		a.sandbox = sb
		close(a.done)
	}
	t.mu.Unlock()
	if !wanted { // its end was requested, and did not wait for it
		sbs.discard(sb)
		sbs.fail(t, a, occurFail, schemas.Errorf(schemas.CodeUnavailable, "sandbox %s of thread %s was ended before it was ready", a.id, t.ID))
		return
	}
	t.YieldPlace()
	sbs.background.Go(func() { sbs.watch(t, a) })
}

// provide calls the provider, and does not wait for one that ignores its context. Errors: the provider's, those of the secrets,
// deadline_exceeded; unavailable, whatever the provider says, when the worker can open no more files.
func (sbs *sandboxes) provide(ctx context.Context, t *Thread, a *sandboxAttempt) (sandbox.Sandbox, error) {
	spec, err := sbs.spec(t, a)
	if err != nil {
		return nil, err
	}
	type created struct {
		sandbox sandbox.Sandbox
		err     error
	}
	result := make(chan created, 1)
	if !sbs.background.Go(func() {
		sb, err := sbs.providers[t.Session.Provider].Create(ctx, spec)
		result <- created{sb, shortage.Explain(err)}
	}) {
		return nil, context.Canceled
	}
	select {
	case c := <-result:
		return c.sandbox, c.err
	case <-ctx.Done():
	}
	// A provider's Create ends with its context. A sandbox that comes later is of no use.
	wait := time.NewTimer(sbs.timeouts.Gone)
	defer wait.Stop()
	select {
	case c := <-result:
		return c.sandbox, c.err
	case <-wait.C:
		sbs.background.Go(func() {
			if c := <-result; c.sandbox != nil {
				sbs.discard(c.sandbox)
			}
		})
		return nil, ctx.Err()
	}
}

// spec is the sandbox that the thread's template describes. Errors: those of the secrets, and of the operator's lists, which may have
// changed since the session began.
func (sbs *sandboxes) spec(t *Thread, a *sandboxAttempt) (sandbox.Spec, error) {
	template, owner := t.Template, ownershipOf(t)
	if err := sbs.allowed(t.Tenant, template, t.Session.Image); err != nil {
		return sandbox.Spec{}, err
	}
	owner.Cold = sbs.hasColdStart(t)
	spec := sandbox.Spec{
		ID: a.id, Thread: t.ID, Workspace: t.Session.Workspace, Image: t.Session.Image, Rootfs: template.Rootfs,
		Network: cmp.Or(template.Network, sbs.network), ReadOnly: template.Workspace.ReadOnly(),
		Limits: sbs.limitsOf(template), Owner: owner.String(), Env: template.Env,
	}
	var err error
	spec.Secrets, err = sbs.secretsOf(template)
	return spec, err
}

func (sbs *sandboxes) secretsOf(template *schemas.Template) (map[string]string, error) {
	if sbs.secrets == nil || len(template.Secrets) == 0 {
		return nil, nil
	}
	return sbs.secrets(template)
}

// supply gives a sandbox that an earlier incarnation of this worker left the secrets of its template, before a process is started in it.
// Errors: those of the secrets.
func (sbs *sandboxes) supply(t *Thread, a *sandboxAttempt) error {
	attached, ok := a.sandbox.(sandbox.Attached)
	if !a.adopted || !ok {
		return nil
	}
	a.supplying.Lock()
	defer a.supplying.Unlock()
	if a.supplied {
		return nil
	}
	secrets, err := sbs.secretsOf(t.Template)
	if err == nil {
		err = attached.SetSecrets(secrets)
	}
	a.supplied = err == nil
	return err
}

// limitsOf returns the limits of a template's sandboxes, where zeros have the provider's defaults.
func (sbs *sandboxes) limitsOf(t *schemas.Template) sandbox.Limits {
	return sandbox.LimitsOf(&t.Limits).Or(sbs.limits)
}

// setOwner stores with a sandbox that its thread owns it and that its cold start has completed. The disk may be full: the sandbox is of
// use now, and after a crash it is not found again.
func (sbs *sandboxes) setOwner(t *Thread, sb sandbox.Sandbox) {
	attached, ok := sb.(sandbox.Attached)
	if !ok {
		return // its provider reattaches none
	}
	if err := attached.SetOwner(ownershipOf(t).String()); err != nil {
		t.log(sbs.publisher.Log.Warn().Err(err)).Str("sandbox", sb.ID()).Msg("ownership of a sandbox not stored")
	}
}

// discard ends a sandbox that no run has used.
func (sbs *sandboxes) discard(sb sandbox.Sandbox) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sbs.background.Context()), sbs.timeouts.SandboxEnd)
	defer cancel()
	_ = sb.Terminate(ctx, 0) // its error is ctx's: the supervisor still ends with the worker
}

// watch reports a sandbox that ends by itself.
func (sbs *sandboxes) watch(t *Thread, a *sandboxAttempt) {
	select {
	case <-a.sandbox.Done():
		sbs.apply(t, a, occurEnd, nil)
	case <-sbs.background.Context().Done():
	}
}
