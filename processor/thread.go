package processor

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// thread is a conversation this worker owns, with its session and, from the first command on, its sandbox.
type thread struct {
	tenant, thread string
	session        schemas.Session
	revision       uint64

	mu     sync.Mutex
	busy   int // runs not ended
	last   time.Time
	making *making
}

// making is a sandbox, or the attempt to make one.
type making struct {
	done chan struct{}
	sb   sandbox.Sandbox
	err  error
}

func threadKey(tenant, thread string) string { return tenant + "." + thread }

// claimTries bounds how often a claim that lost a race is tried again.
const claimTries = 4

// claim makes this worker the owner of a thread, or says who is. Errors: those of resolve, unavailable.
func (w *Worker) claim(ctx context.Context, tenant, id string, k kind) (t *thread, owner string, err error) {
	key := threadKey(tenant, id)
	defer w.claims.lock(key)()
	w.mu.Lock()
	t, leaving := w.threads[key], w.leaving
	w.mu.Unlock()
	if t != nil {
		return t, w.cfg.Worker, nil
	}
	if leaving {
		return nil, "", schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", w.cfg.Worker).With(schemas.DetailDeclined, "shutdown")
	}
	for range claimTries {
		t, owner, err = w.tryClaim(ctx, tenant, id, k)
		if !errors.Is(err, schemas.ErrConflict) {
			break
		}
	}
	if err != nil || t == nil {
		return nil, owner, err
	}
	if err := w.cfg.Threads.Own(ctx, tenant, id); err != nil {
		w.cfg.Threads.Disown(tenant, id)
		return nil, "", err
	}
	w.mu.Lock()
	w.threads[key] = t
	w.mu.Unlock()
	return t, w.cfg.Worker, nil
}

func (w *Worker) tryClaim(ctx context.Context, tenant, id string, k kind) (*thread, string, error) {
	now := time.Now().UTC()
	s, revision, err := w.cfg.Sessions.Session(ctx, tenant, id)
	typ := schemas.TypeSessionReused
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		k, err := w.resolve(k)
		if err != nil {
			return nil, "", err
		}
		typ = schemas.TypeSessionCreated
		s = &schemas.Session{ID: ulid.Make().String(), Tenant: tenant, Thread: id, Provider: k.provider, Image: k.image, Created: now}
	case err != nil:
		return nil, "", err
	case s.Owner != w.cfg.Worker:
		alive, err := w.cfg.Roster.LeaseAlive(ctx, s.Owner)
		if err != nil {
			return nil, "", err
		}
		if alive {
			return nil, s.Owner, nil
		}
	}
	if _, err := w.resolve(kind{s.Provider, s.Image}); err != nil {
		return nil, "", err
	}
	s.Owner, s.Epoch, s.LastActivity = w.cfg.Worker, s.Epoch+1, now
	revision, err = w.cfg.Sessions.SaveSession(ctx, s, revision)
	if err != nil {
		return nil, "", err
	}
	w.publish(ctx, w.event(typ, tenant, id, s.ID, "", s))
	return &thread{tenant: tenant, thread: id, session: *s, revision: revision, last: now}, w.cfg.Worker, nil
}

// publish writes an event that informs and decides nothing: when it cannot be written, that is logged.
func (w *Worker) publish(ctx context.Context, ev *schemas.Event) {
	if w.fenced.Load() {
		return // another worker may speak for what this one ran
	}
	if err := w.cfg.Records.Publish(ctx, ev); err != nil {
		w.cfg.Log.Warn().Err(err).Str("type", string(ev.Type)).Str("thread", ev.Thread).Msg("event not published")
	}
}

// sandbox is the thread's sandbox, made now where there is none or the last one has ended. All who ask meanwhile wait for
// the same one. Errors: the provider's.
func (w *Worker) sandbox(ctx context.Context, t *thread) (sandbox.Sandbox, error) {
	t.mu.Lock()
	m := t.making
	if m != nil && m.ended() {
		m = nil
	}
	if m == nil {
		m = &making{done: make(chan struct{})}
		t.making = m
		// Apart from the command that asks first: when that is killed, others still wait for the sandbox.
		w.work.Go(func() { w.makeSandbox(t, m) })
	}
	t.mu.Unlock()
	select {
	case <-m.done:
		return m.sb, m.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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

func (w *Worker) makeSandbox(t *thread, m *making) {
	ctx, cancel := context.WithTimeout(w.creating, w.creation(t))
	defer cancel()
	begin := time.Now()
	id := "s" + strings.ToLower(ulid.Make().String())
	info := schemas.SandboxInfo{ID: id, Provider: t.session.Provider, Workspace: filepath.Join(w.cfg.Workspaces, t.tenant, t.thread)}
	m.sb, m.err = w.cfg.Providers[t.session.Provider].Create(ctx, sandbox.Spec{
		ID: id, Thread: t.thread, Workspace: info.Workspace, Image: t.session.Image, Limits: w.cfg.Limits, Mark: t.mark().String(),
	})
	info.StartMS = millis(time.Since(begin))
	typ := schemas.TypeSandboxRunning
	if m.err != nil {
		typ, info.Error = schemas.TypeSandboxFailed, schemas.AsError(m.err)
	}
	close(m.done) // the first command need not wait for the event
	w.publish(w.bg, w.event(typ, t.tenant, t.thread, t.session.ID, "", info))
}

// begin and end count a run of the thread. The session is idle from the last end on.
func (t *thread) begin() {
	t.mu.Lock()
	t.busy++
	t.mu.Unlock()
}

func (t *thread) end() {
	t.mu.Lock()
	t.busy--
	t.last = time.Now()
	t.mu.Unlock()
}

// terminate ends the thread's sandbox, if it has one, and says which that was.
func (t *thread) terminate(ctx context.Context, grace time.Duration) (ended string) {
	t.mu.Lock()
	m := t.making
	t.mu.Unlock()
	if m == nil {
		return ""
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		return "" // its provider ends it when it comes
	}
	if m.sb == nil {
		return ""
	}
	_ = m.sb.Terminate(ctx, grace) // its error is ctx's: the supervisor ends with the worker all the same
	return m.sb.ID()
}

// endSandbox ends the thread's sandbox and tells of it, unless another worker may own the thread by now.
func (w *Worker) endSandbox(ctx context.Context, t *thread, grace time.Duration) {
	id := t.terminate(ctx, grace)
	if id == "" || w.fenced.Load() {
		return
	}
	w.publish(ctx, w.event(schemas.TypeSandboxEnded, t.tenant, t.thread, t.session.ID, "", schemas.SandboxInfo{ID: id, Provider: t.session.Provider}))
}

// expireIdle ends the sessions that have run nothing for the idle timeout.
func (w *Worker) expireIdle(ctx context.Context) {
	w.mu.Lock()
	var idle []*thread
	for _, t := range w.threads {
		if t.idle(w.cfg.IdleTimeout) {
			idle = append(idle, t)
		}
	}
	w.mu.Unlock()
	for _, t := range idle {
		w.expire(ctx, t)
	}
}

func (t *thread) idle(timeout time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy == 0 && time.Since(t.last) > timeout
}

func (w *Worker) expire(ctx context.Context, t *thread) {
	key := threadKey(t.tenant, t.thread)
	defer w.claims.lock(key)()
	w.mu.Lock()
	if !t.idle(w.cfg.IdleTimeout) { // a command came since
		w.mu.Unlock()
		return
	}
	delete(w.threads, key)
	w.mu.Unlock()
	w.cfg.Threads.Disown(t.tenant, t.thread)
	w.endSandbox(ctx, t, w.cfg.StopGrace)
	if err := w.cfg.Sessions.DeleteSession(ctx, &t.session, t.revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
		w.cfg.Log.Warn().Err(err).Str("thread", t.thread).Msg("delete session")
	}
	w.publish(ctx, w.event(schemas.TypeSessionExpired, t.tenant, t.thread, t.session.ID, "", t.session))
	w.cfg.Log.Info().Str("thread", t.thread).Str("session_id", t.session.ID).Msg("session_expired")
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
