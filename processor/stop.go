package processor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// ending is a session on its way to its end. Whoever wants the same meanwhile waits for this one, and gets the same answer.
type ending struct {
	why      schemas.EventType // session.terminated or session.expired
	grace    *time.Duration    // for what runs; nil for the template's
	snapshot bool              // keep the session where its workspace cannot be pushed

	mu      sync.Mutex
	remove  bool // the workspace's folder too
	over    bool
	reply   schemas.SessionReply
	waiting []func(schemas.SessionReply)
}

// endingOf is what a stop request asks for.
func endingOf(req *schemas.StopRequest) *ending {
	e := &ending{why: schemas.TypeSessionTerminated, snapshot: req.Snapshot, remove: req.Delete}
	if req.GraceMS != nil {
		grace := time.Duration(*req.GraceMS) * time.Millisecond
		e.grace = &grace
	}
	return e
}

// then has done called with the outcome, now or once there is one.
func (e *ending) then(done func(schemas.SessionReply)) {
	e.mu.Lock()
	over := e.over
	if !over {
		e.waiting = append(e.waiting, done)
	}
	e.mu.Unlock()
	if over {
		done(e.reply)
	}
}

func (e *ending) finish(reply schemas.SessionReply) {
	e.mu.Lock()
	e.over, e.reply = true, reply
	waiting := e.waiting
	e.waiting = nil
	e.mu.Unlock()
	for _, done := range waiting {
		done(reply)
	}
}

func (e *ending) removes() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.remove
}

// wait waits for the outcome, or for ctx.
func (e *ending) wait(ctx context.Context) {
	over := make(chan struct{})
	e.then(func(schemas.SessionReply) { close(over) })
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// beginEnd begins to end a thread's session, or joins whoever does already. still is asked in the same step that keeps further
// commands out, and may call it off: the ending is nil then. Errors: unavailable, invalid_argument.
func (w *Worker) beginEnd(t *thread, e *ending, still func() bool) (*ending, error) {
	if e.snapshot && (w.cfg.Hooks == nil || t.template.Sync == nil) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "snapshot: template %q of thread %s keeps workspaces nowhere: stop it without, or give the template a sync location", t.template.Name, t.thread).With("path", "snapshot")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if under := t.ending; under != nil {
		under.mu.Lock()
		under.remove = under.remove || e.remove
		under.mu.Unlock()
		return under, nil
	}
	if w.leaving || w.threads[threadKey(t.tenant, t.thread)] != t {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is giving thread %s up: ask again", w.cfg.Worker, t.thread)
	}
	if still != nil && !still() {
		return nil, nil
	}
	if !w.errands.do(func() { w.endSession(t, e) }) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", w.cfg.Worker)
	}
	t.ending = e
	return e, nil
}

// endSession ends what runs, runs the hooks, ends the sandbox and forgets the session. Every step has a bound.
func (w *Worker) endSession(t *thread, e *ending) {
	if e.why == schemas.TypeSessionExpired {
		w.calm <- struct{}{}
		defer func() { <-w.calm }()
	}
	grace := w.grace(t)
	if e.grace != nil {
		grace = *e.grace
	}
	w.killAll(t, grace)
	within(t.quieted(), grace+w.cfg.patience.kill+w.cfg.patience.answer)
	if err := w.terminateHooks(w.bg, t, w.cfg.patience.hooks); err != nil && e.snapshot {
		t.mu.Lock()
		t.ending = nil
		t.last = time.Now()
		t.mu.Unlock()
		s := w.info(t)
		e.finish(schemas.SessionReply{Session: &s, Error: schemas.Errorf(schemas.CodeOf(err), "the workspace of thread %s was not pushed, and its session is kept: %w", t.thread, err)})
		return
	}
	ctx, cancel := context.WithTimeout(w.bg, grace+w.cfg.patience.end)
	defer cancel()
	w.endSandbox(ctx, t, grace)
	var err error
	if e.removes() && !w.isFenced() {
		err = w.removeWorkspace(t)
	}
	last, forgetErr := w.forget(ctx, t, e.why)
	if errors.Is(forgetErr, schemas.ErrLost) {
		return // another worker may own it: that one answers
	}
	reply := schemas.SessionReply{Session: &last}
	switch {
	case forgetErr != nil:
		err = forgetErr
		reply.Error = schemas.Errorf(schemas.CodeOf(err), "the session of thread %s has ended, but its entry is still there, and goes when it expires: %w", t.thread, err)
	case err != nil:
		reply.Error = schemas.Errorf(schemas.CodeInternal, "the session of thread %s has ended, but its folder was not removed: %w", t.thread, err)
	}
	name := "session_terminated"
	if e.why == schemas.TypeSessionExpired {
		name = "session_expired"
	}
	w.cfg.Log.Info().Err(err).Str("thread", t.thread).Str("session_id", t.session.ID).Msg(name)
	e.finish(reply)
}

// killAll ends what runs in a thread.
func (w *Worker) killAll(t *thread, grace time.Duration) {
	w.mu.Lock()
	runs := w.runsLocked()
	w.mu.Unlock()
	for _, r := range runs {
		if r.thread == t {
			r.kill(grace)
		}
	}
}

// quieted is closed when nothing of the thread runs.
func (t *thread) quieted() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.quiet != nil {
		return t.quiet
	}
	ch := make(chan struct{})
	if t.busy == 0 {
		close(ch)
	} else {
		t.quiet = ch
	}
	return ch
}

// terminateHooks runs the hooks of a session's end. Errors: those of a hook, critical or not, and of the deadline.
func (w *Worker) terminateHooks(ctx context.Context, t *thread, bound time.Duration) error {
	if w.cfg.Hooks == nil || w.isFenced() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	t.mu.Lock()
	m := t.making
	t.mu.Unlock()
	var failed []string
	var err error
	if m == nil {
		failed, err = w.runHooks(ctx, t, occasion{phase: schemas.PhaseTerminate})
	} else {
		select {
		case <-m.done: // one that is being made is waited for: its cold start may just be pulling what these push
		case <-ctx.Done():
			return ctx.Err()
		}
		failed, err = w.runHooks(ctx, t, occasion{phase: schemas.PhaseTerminate, sb: m.sb})
	}
	if err == nil && len(failed) > 0 {
		err = schemas.Errorf(schemas.CodeUnavailable, "hooks failed: %q", failed)
	}
	if err != nil {
		w.cfg.Log.Warn().Err(err).Str("thread", t.thread).Str("session_id", t.session.ID).Msg("terminate hooks")
	}
	return err
}

// forget gives a thread up, takes its session out of KV and says how it was last. Errors: lost where it was another worker's by
// then, unavailable.
func (w *Worker) forget(ctx context.Context, t *thread, why schemas.EventType) (last schemas.Session, err error) {
	key := threadKey(t.tenant, t.thread)
	defer w.claims.lock(key)()
	t.settleNotes(ctx)
	last = w.info(t)
	w.cfg.Subscriptions.Unsubscribe(t.tenant, t.thread)
	w.mu.Lock()
	if w.threads[key] == t {
		delete(w.threads, key)
	}
	w.mu.Unlock()
	if w.isFenced() {
		return last, schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost", w.cfg.Worker)
	}
	if err := w.deleteSession(ctx, t); err != nil {
		w.cfg.Log.Warn().Err(err).Str("thread", t.thread).Str("session_id", t.session.ID).Msg("delete session")
		return last, err // what ended it is told when its entry goes
	}
	w.publish(ctx, w.event(why, t.tenant, t.thread, t.session.ID, "", last))
	return last, nil
}

// deleteSession takes the thread's session out of KV. Errors: lost, unavailable.
func (w *Worker) deleteSession(ctx context.Context, t *thread) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	for {
		t.mu.Lock()
		revision := t.revision
		t.mu.Unlock()
		err := w.cfg.Sessions.DeleteSession(ctx, &t.session, revision)
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		switch _, _, readErr := w.cfg.Sessions.Session(ctx, t.tenant, t.thread); {
		case errors.Is(readErr, schemas.ErrNotFound):
			return nil // it was this worker's own write, whose ack got lost: nobody else deletes what a live owner has
		case readErr != nil:
			return readErr
		}
		if err := w.reread(ctx, t); err != nil {
			return err
		}
	}
}

// removeWorkspace removes the thread's folder. Nothing in it can lead the removal elsewhere.
func (w *Worker) removeWorkspace(t *thread) error {
	root, err := os.OpenRoot(w.cfg.Workspaces)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = root.RemoveAll(filepath.Join(t.tenant, t.thread))
	return errors.Join(err, root.Close())
}
