package processor

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// wants is what somebody asks of a thread's session.
type wants struct {
	kind
	template           string
	session            string // the id it must have
	existing           bool   // make none
	lapsed             bool   // one that has expired will do
	user               string
	tags               map[string]string
	idleMS, lifetimeMS int64
}

// wantsOf is what a place request asks for.
func wantsOf(r *schemas.PlaceRequest) wants {
	return wants{
		kind: kind{r.Provider, r.Image}, template: r.Template, existing: r.Existing, user: r.User, tags: r.Tags,
		idleMS: r.IdleTimeoutMS, lifetimeMS: r.MaxLifetimeMS,
	}
}

// fits says whether a session that is there is the one that is wanted. Errors: session_expired, conflict.
func (v *wants) fits(s *schemas.Session) error {
	if err := sameSession(v.session, s); err != nil {
		return err
	}
	if err := v.kind.fits(s); err != nil {
		return err
	}
	has := or(s.Template, defaultTemplate)
	if v.template != "" && v.template != has {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a session of template %s, not %s: use another thread, or stop that session first", s.Thread, has, v.template)
	}
	return nil
}

// sameSession says whether a session is the one that was named, if one was. Errors: session_expired.
func sameSession(id string, s *schemas.Session) error {
	if id == "" || id == s.ID {
		return nil
	}
	return schemas.Errorf(schemas.CodeSessionExpired, "session %.128s of thread %s has ended, and the thread has another: leave the session out to use whichever there is", id, s.Thread)
}

// newSession is the one that a thread without one gets. Errors: those of template and resolve, session_expired, not_found.
func (w *Worker) newSession(tenant, thread string, v *wants, now time.Time) (*schemas.Session, error) {
	switch {
	case v.session != "":
		return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %.128s of thread %s has ended: leave the session out to get a new one", v.session, thread)
	case v.existing:
		return nil, schemas.Errorf(schemas.CodeNotFound, "thread %s has no session: it never had one, or it has ended", thread)
	}
	t, err := w.template(v.template)
	if err != nil {
		return nil, err
	}
	k := v.kind
	if k.provider == "" || k.provider == auto {
		k.provider = t.Provider
	}
	if k.image == "" {
		k.image = t.Image
	}
	if k, err = w.resolve(k); err != nil {
		return nil, err
	}
	s := &schemas.Session{
		ID: ulid.Make().String(), Tenant: tenant, Thread: thread, User: v.user, Tags: v.tags, Template: t.Name,
		Provider: k.provider, Image: k.image, Created: now, IdleTimeoutMS: v.idleMS,
	}
	lifetime := v.lifetimeMS
	if lifetime == 0 {
		lifetime = t.Session.MaxLifetimeMS
	}
	if lifetime > 0 {
		s.Deadline = now.Add(time.Duration(lifetime) * time.Millisecond)
	}
	return s, nil
}

// idleTimeout is how long a session may run nothing.
func (w *Worker) idleTimeout(s *schemas.Session, t *schemas.Template) time.Duration {
	for _, ms := range []int64{s.IdleTimeoutMS, t.Session.IdleTimeoutMS} {
		if ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return w.cfg.IdleTimeout
}

// isFenced says that another worker may speak for what this one ran.
func (w *Worker) isFenced() bool { return w.fenced.Load() || !w.cfg.LeaseHeld() }

// info is the thread's session as it is now.
func (w *Worker) info(t *thread) schemas.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.now
	w.stamp(t, &s)
	return s
}

// stamp gives a session its times. t.mu is held.
func (w *Worker) stamp(t *thread, s *schemas.Session) {
	last := t.last
	if t.busy > 0 {
		last = time.Now()
	}
	s.LastActivity = last.UTC()
	s.Expires = s.LastActivity.Add(w.idleTimeout(s, t.template))
}

// change writes the thread's session to KV, changed by edit. It is the only way a session of this worker changes. Errors: lost
// where the session is no longer this worker's, unavailable.
func (w *Worker) change(ctx context.Context, t *thread, edit func(*schemas.Session)) (*schemas.Session, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	for range claimTries {
		if w.isFenced() {
			return nil, schemas.Errorf(schemas.CodeLost, "the lease of worker %s is lost", w.cfg.Worker)
		}
		t.mu.Lock()
		s, revision := t.now, t.revision
		edit(&s)
		w.stamp(t, &s)
		t.mu.Unlock()
		revision, err := w.cfg.Sessions.SaveSession(ctx, &s, revision)
		if errors.Is(err, schemas.ErrConflict) {
			// An earlier write whose ack got lost, or another owner's.
			if err = w.reread(ctx, t); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		t.now, t.revision, t.saved = s, revision, time.Now()
		t.mu.Unlock()
		return &s, nil
	}
	return nil, schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s changes too often", t.thread)
}

// reread takes over what KV has of the thread's session. Errors: lost, unavailable.
func (w *Worker) reread(ctx context.Context, t *thread) error {
	s, revision, err := w.cfg.Sessions.Session(ctx, t.tenant, t.thread)
	if errors.Is(err, schemas.ErrNotFound) || (err == nil && !t.owns(s, w.cfg.Worker)) {
		return schemas.Errorf(schemas.CodeLost, "session %s of thread %s is no longer worker %s's", t.session.ID, t.thread, w.cfg.Worker)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.now, t.revision = *s, revision
	t.mu.Unlock()
	return nil
}

func (t *thread) owns(s *schemas.Session, worker string) bool {
	return s.ID == t.session.ID && s.Owner == worker && s.Epoch == t.session.Epoch
}

// Amend changes the session of a thread that this worker owns: its counts, its version. Errors: session_expired where the thread has
// another session or none here, lost, unavailable.
func (w *Worker) Amend(ctx context.Context, tenant, thread, session string, edit func(*schemas.Session)) error {
	t := w.threadOf(tenant, thread)
	if t == nil || t.session.ID != session {
		return schemas.Errorf(schemas.CodeSessionExpired, "session %.128s of thread %s is not one that worker %s has", session, thread, w.cfg.Worker)
	}
	_, err := w.change(ctx, t, edit)
	return err
}

// Owns says whether this worker still owns a thread under an epoch, by what KV holds and by its lease's own clock. Whoever is
// about to write for the thread where no compare-and-swap protects it asks here right before. Errors: lost, unavailable.
func (w *Worker) Owns(ctx context.Context, tenant, thread string, epoch uint64) error {
	if !w.isFenced() {
		s, _, err := w.cfg.Sessions.Session(ctx, tenant, thread)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		// Asked last: the read may have taken long.
		if err == nil && s.Owner == w.cfg.Worker && s.Epoch == epoch && !w.isFenced() {
			return nil
		}
	}
	return schemas.Errorf(schemas.CodeLost, "thread %s is no longer worker %s's under epoch %d: another one may own it", thread, w.cfg.Worker, epoch)
}

// threadOf is a thread this worker owns; nil for another.
func (w *Worker) threadOf(tenant, thread string) *thread {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.threads[threadKey(tenant, thread)]
}

// HandlePlace takes a thread that nobody owns, and makes its session where it has none.
func (w *Worker) HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply {
	c, err := w.claim(ctx, tenant, req.Thread, wantsOf(&req))
	if err == nil && c.thread != nil && !req.Existing {
		c, err = w.afterEnd(ctx, c, tenant, &req)
	}
	if err != nil {
		return schemas.PlaceReply{Error: schemas.AsError(err)}
	}
	reply := schemas.PlaceReply{Worker: c.owner, Session: c.session, Created: c.created}
	if c.thread == nil {
		return reply
	}
	if req.Start {
		if _, err := w.sandbox(ctx, c.thread); err != nil {
			reply.Error = schemas.AsError(startError(err))
			return reply
		}
		c.thread.touch()
	}
	s := w.info(c.thread)
	reply.Session = &s
	if !c.created && !req.Existing {
		w.noteReuse(c.thread, &s)
	}
	return reply
}

// afterEnd claims anew where the session that was found is being ended. Errors: those of claim, unavailable where that takes long.
func (w *Worker) afterEnd(ctx context.Context, c claimed, tenant string, req *schemas.PlaceRequest) (claimed, error) {
	bound, cancel := context.WithTimeout(ctx, w.cfg.patience.accept)
	defer cancel()
	for c.thread != nil {
		c.thread.mu.Lock()
		e := c.thread.ending
		c.thread.mu.Unlock()
		if e == nil {
			return c, nil
		}
		e.wait(bound)
		if bound.Err() != nil {
			return claimed{}, schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s is being ended: try again", req.Thread)
		}
		var err error
		if c, err = w.claim(ctx, tenant, req.Thread, wantsOf(req)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// reuseEvery is how often at most it is told that a session was found again: who asks for it before each command, thousands of
// times a second, is one user of it.
const reuseEvery = 100 * time.Millisecond

// noteReuse has it told that a session was found again. One event tells of all who find it soon after.
func (w *Worker) noteReuse(t *thread, s *schemas.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
	if t.last.Sub(t.reused) < reuseEvery {
		return
	}
	t.reused = t.last
	w.noteLocked(t, note{event: w.event(schemas.TypeSessionReused, t.tenant, t.thread, t.session.ID, "", s)})
}

// HandleSession carries out a request about a session and calls done, once, with what became of it, now or later. A worker
// whose lease is lost calls nothing: the answer is for the thread's owner to give.
func (w *Worker) HandleSession(ctx context.Context, req schemas.SessionControl, reply func(schemas.SessionReply)) {
	done := func(r schemas.SessionReply) {
		if !w.isFenced() {
			reply(r)
		}
	}
	t := w.threadOf(req.Tenant, req.Thread)
	refuse := func(err error) { done(schemas.SessionReply{Error: schemas.AsError(err)}) }
	if t == nil {
		// What was sent before this worker gave the thread up still comes here.
		refuse(schemas.Errorf(schemas.CodeUnavailable, "worker %s does not own thread %s: ask again", w.cfg.Worker, req.Thread))
		return
	}
	id := ""
	switch {
	case req.Stop != nil:
		id = req.Stop.Session
	case req.Renew != nil:
		id = req.Renew.Session
	case req.Start != nil:
		id = req.Start.Session
	}
	if err := sameSession(id, &t.session); err != nil {
		refuse(err)
		return
	}
	switch {
	case req.Stop != nil:
		e, err := w.beginEnd(t, endingOf(req.Stop), nil)
		if err != nil {
			refuse(err)
			return
		}
		e.then(done)
	case req.Renew != nil:
		w.side(refuse, func() { done(w.renew(ctx, t, req.Renew)) })
	case req.Start != nil:
		w.side(refuse, func() { done(w.start(ctx, t)) })
	default:
		refuse(schemas.Errorf(schemas.CodeInvalidArgument, "an empty request about a session"))
	}
}

// side does what takes longer than whoever asked may wait for.
func (w *Worker) side(refuse func(error), f func()) {
	if !w.errands.do(f) {
		refuse(schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", w.cfg.Worker))
	}
}

func (w *Worker) renew(ctx context.Context, t *thread, req *schemas.RenewRequest) schemas.SessionReply {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.patience.accept)
	defer cancel()
	t.mu.Lock()
	ends := t.ending != nil
	if !ends {
		t.last = time.Now()
	}
	t.mu.Unlock()
	if ends {
		return schemas.SessionReply{Error: schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s is being ended", t.session.ID, t.thread)}
	}
	s, err := w.change(ctx, t, func(s *schemas.Session) {
		if req.IdleTimeoutMS > 0 {
			s.IdleTimeoutMS = req.IdleTimeoutMS
		}
	})
	if err != nil {
		return schemas.SessionReply{Error: schemas.AsError(err)}
	}
	return schemas.SessionReply{Session: s}
}

// start makes the thread's sandbox.
func (w *Worker) start(ctx context.Context, t *thread) schemas.SessionReply {
	if _, err := w.sandbox(ctx, t); err != nil {
		return schemas.SessionReply{Error: schemas.AsError(startError(err))}
	}
	t.touch()
	s := w.info(t)
	return schemas.SessionReply{Session: &s}
}
