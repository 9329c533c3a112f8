package session

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// DefaultTemplate is the name of the template that every worker has.
const DefaultTemplate = "default"

// Request is the session that a caller asks for. Zero fields leave the choice to the worker.
type Request struct {
	Placement
	Template                  string
	Session                   string // the id it must have
	Existing                  bool   // make no session
	User                      string
	Tags                      map[string]string
	IdleTimeoutMS, LifetimeMS int64
	Origin                    schemas.Origin
	// Check is called before a session is made. Its error ends the claim. Nil: no check.
	Check func(context.Context) error
	// Room reports whether there is room for a process of a thread that this worker does not own yet. Nil: the thread is claimed without.
	Room func() bool
	// Sandbox gives a thread that this worker does not own yet a place for a sandbox, until YieldPlace of the Thread. Waits says that a command
	// waits for that place otherwise.
	Sandbox, Waits bool

	expired bool // claim the session even if it has expired
}

// Fits returns nil when an existing session is the one requested. Errors: session_expired, conflict.
func (want *Request) Fits(s *schemas.Session) error {
	if err := sameSession(want.Session, s); err != nil {
		return err
	}
	if err := want.Placement.fits(s); err != nil {
		return err
	}
	if has := cmp.Or(s.Template, DefaultTemplate); want.Template != "" && want.Template != has {
		return schemas.Errorf(schemas.CodeConflict, "thread %s has a session of template %s, not %s: %s", s.Thread, has, want.Template, wayOut(s.Thread))
	}
	return nil
}

// FitsThread is Fits for a thread that this worker owns. A session whose workspace begins with another thread's is no fit either.
func (want *Request) FitsThread(t *Thread) error {
	if from, err := t.Template.Workspace.Source(want.Origin.Labels); err == nil && from != t.Session.From {
		return schemas.Errorf(schemas.CodeConflict, "the workspace of thread %s began with that of thread %s, not of %s: use another thread, or stop that session first", t.ID, t.Session.From, from)
	}
	return want.Fits(&t.Session)
}

// sameSession returns nil when a session has this id, or the id is empty. Errors: session_expired.
func sameSession(id string, s *schemas.Session) error {
	if id == "" || id == s.ID {
		return nil
	}
	return schemas.Errorf(schemas.CodeSessionExpired, "session %.128s of thread %s has ended, and the thread has another: leave the session out to use the current one", id, s.Thread)
}

// Claim is who owns a thread.
type Claim struct {
	// Thread is nil when another worker owns it.
	Thread *Thread
	// Owner is that worker, or this one.
	Owner string

	session *schemas.Session // as it was found or made
	created bool             // by this claim
}

// claimTries bounds how often a claim or a write that lost a race is tried again.
const claimTries = 4

// errRaced reports that another worker changed a session at the same time.
var errRaced = errors.New("lost a race")

// Claim makes this worker the owner of a thread, or returns the owner. Errors: those of a new session, of Request.Fits and of
// resolve; unavailable.
func (ss *Sessions) Claim(ctx context.Context, tenant, id string, want Request) (Claim, error) {
	key := key(tenant, id)
	defer ss.claims.Lock(key)()
	ss.mu.Lock()
	t, leaving := ss.threads[key], ss.leaving || ss.publisher.Fenced()
	ss.mu.Unlock()
	if t != nil && (leaving || ss.Settled(t, &want)) {
		return Claim{Thread: t, Owner: ss.publisher.Worker, session: &t.Session}, want.FitsThread(t)
	}
	if leaving {
		return Claim{}, ss.leavingError()
	}
	if t != nil && !ss.replace(ctx, t) {
		return Claim{Thread: t, Owner: ss.publisher.Worker, session: &t.Session}, want.FitsThread(t)
	}
	var claim Claim
	err := errRaced
	for range claimTries {
		if claim, err = ss.tryClaim(ctx, tenant, id, &want); !errors.Is(err, errRaced) {
			break
		}
	}
	if errors.Is(err, errRaced) {
		err = schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s is changing its owner: try again", id)
	}
	if err != nil || claim.Thread == nil {
		return claim, err
	}
	if err := ss.cfg.Subscriptions.Subscribe(ctx, tenant, id); err != nil {
		ss.cfg.Subscriptions.Unsubscribe(tenant, id)
		claim.Thread.withdraw()
		return Claim{}, err
	}
	if !ss.add(claim.Thread) {
		claim.Thread.withdraw()
		ss.cfg.Subscriptions.Unsubscribe(tenant, id)
		return Claim{}, ss.leavingError()
	}
	return claim, nil
}

// Owner returns the worker that owns a thread, empty when no live one does. Errors: unavailable.
func (ss *Sessions) Owner(ctx context.Context, tenant, id string) (string, error) {
	s, _, err := ss.cfg.Store.Session(ctx, tenant, id)
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case s.Owner == ss.publisher.Worker:
		return s.Owner, nil
	}
	if alive, err := ss.cfg.LeaseAlive(ctx, s.Owner); err != nil || !alive {
		return "", err
	}
	return s.Owner, nil
}

// add makes the thread this worker's. It reports false after Leave: HandOver would miss the thread. The session in KV is then the
// next owner's as soon as the lease ends.
func (ss *Sessions) add(t *Thread) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.leaving {
		return false
	}
	ss.threads[key(t.Tenant, t.ID)] = t
	return true
}

// leavingError declines a claim for this worker alone.
func (ss *Sessions) leavingError() *schemas.Error {
	return schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker).With(schemas.DetailDeclined, "shutdown")
}

// fullError declines a claim for this worker alone, in the same way.
func (ss *Sessions) fullError() *schemas.Error {
	return schemas.Errorf(schemas.CodePoolExhausted, "worker %s has no room for another process: try again later, raise --max-processes, or free space on its disk",
		ss.publisher.Worker).With(schemas.DetailDeclined, schemas.DeclinedFull)
}

func (ss *Sessions) tryClaim(ctx context.Context, tenant, id string, want *Request) (Claim, error) {
	now := time.Now().UTC()
	s, revision, err := ss.cfg.Store.Session(ctx, tenant, id)
	typ := schemas.TypeSessionReused
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		if want.Check != nil {
			if err := want.Check(ctx); err != nil {
				return Claim{}, err
			}
		}
		last := s
		if s, err = ss.offer.newSession(tenant, id, want, now); err != nil {
			return Claim{}, err
		}
		s.Epoch = last.Epoch // it counts for the thread
		typ = schemas.TypeSessionCreated
	case err != nil:
		return Claim{}, err
	default:
		alive := false
		if s.Owner != ss.publisher.Worker {
			if alive, err = ss.cfg.LeaseAlive(ctx, s.Owner); err != nil {
				return Claim{}, err
			}
		}
		if !alive && !want.expired && orphanExpired(s, now) {
			if err := ss.entries.deleteOrphan(ctx, s, revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
				return Claim{}, err
			}
			return Claim{}, errRaced // the next try finds no session
		}
		fits := want.Fits(s)
		if fits != nil && (isBound(s) || !errors.Is(fits, schemas.ErrConflict)) {
			return Claim{}, fits
		}
		if alive { // it also decides whether the session changes
			return Claim{Owner: s.Owner, session: s}, nil
		}
		if fits != nil {
			if err := ss.offer.fill(s, cmp.Or(want.Template, s.Template), want, 0); err != nil {
				return Claim{}, err
			}
		}
	}
	if _, err := ss.offer.resolve(Placement{s.Provider, s.Image}); err != nil {
		return Claim{}, err
	}
	template, err := ss.offer.template(s.Template)
	if err != nil {
		return Claim{}, err
	}
	if err := ss.offer.allowed(tenant, template, s.Image); err != nil {
		return Claim{}, err
	}
	if s.Owner != ss.publisher.Worker && want.Room != nil && !want.Room() {
		return Claim{}, ss.fullError()
	}
	t := ss.sandboxes.newThread(tenant, id, template, now)
	if err := ss.cfg.Places.quotas.fits(ss.publisher.Worker, cmp.Or(template.Name, DefaultTemplate), t.need); err != nil {
		return Claim{}, ss.offer.unserved(err)
	}
	if err := t.admit(s.Owner == ss.publisher.Worker, want); err != nil {
		return Claim{}, err.With(schemas.DetailDeclined, schemas.DeclinedFull)
	}
	s.Terminating = false // its sandbox is gone, or was the earlier owner's to end
	s.Owner, s.Epoch, s.Workspace = ss.publisher.Worker, s.Epoch+1, filepath.Join(ss.cfg.Workspaces, tenant, id)
	ss.entries.stamp(t, s)
	revision, err = ss.cfg.Store.SaveSession(ctx, s, revision)
	if err != nil {
		t.withdraw()
	}
	if errors.Is(err, schemas.ErrConflict) {
		return Claim{}, errRaced
	}
	if err != nil {
		return Claim{}, err
	}
	t.Session, t.stored, t.revision, t.saved, t.bound = *s, *s, revision, now, isBound(s)
	ss.publisher.Publish(ctx, ss.entries.event(t, want.Origin, typ, s))
	return Claim{Thread: t, Owner: ss.publisher.Worker, session: &t.Session, created: typ == schemas.TypeSessionCreated}, nil
}

// Adopt claims the thread of a sandbox that an earlier incarnation of this worker left, under the session's next epoch. It returns
// nil when the sandbox belongs to no session of this worker any more. Errors: unavailable.
func (ss *Sessions) Adopt(ctx context.Context, provider string, sb sandbox.Attached) (*Thread, error) {
	spec := sb.Spec()
	owned, ok := parseOwnership(spec.Owner)
	if !ok {
		return nil, nil
	}
	s, revision, err := ss.cfg.Store.Session(ctx, owned.Tenant, spec.Thread)
	switch {
	case errors.Is(err, schemas.ErrNotFound), Unreadable(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !owned.fits(s, ss.publisher.Worker), s.Provider != provider, ss.Find(owned.Tenant, spec.Thread) != nil:
		return nil, nil
	}
	template, err := ss.cfg.Template(s.Template)
	if err != nil {
		return nil, nil //nolint:nilerr // a session whose template is gone cannot go on here
	}
	now := time.Now()
	t := ss.sandboxes.newThread(owned.Tenant, spec.Thread, template, now)
	t.saved, t.warm, t.bound = now, true, true // see ownership.Cold
	s.Epoch, s.State, s.Sandbox, s.Parked, s.Bound = s.Epoch+1, schemas.SandboxRunning, sb.ID(), false, true
	ss.entries.stamp(t, s)
	t.Session, t.stored = *s, *s
	attempt := ss.sandboxes.runningAttempt(t, sb)
	t.attempt = attempt
	if err := ss.sandboxes.supply(t, attempt); err != nil {
		t.log(ss.publisher.Log.Warn().Err(err)).Msg("no command starts without its secrets") // the next one tries again
	}
	// The ownership comes before the session: were the new epoch in the session alone, the sandbox would look like another owner's.
	ss.sandboxes.setOwner(t, sb)
	if t.revision, err = ss.cfg.Store.SaveSession(ctx, s, revision); err != nil {
		if errors.Is(err, schemas.ErrConflict) {
			err = nil // another worker has claimed it since
		}
		return nil, err
	}
	if err := ss.cfg.Subscriptions.Subscribe(ctx, t.Tenant, t.ID); err != nil {
		return nil, err
	}
	t.keepBegun()
	if !ss.add(t) {
		t.withdraw()
		return nil, ss.leavingError()
	}
	t.KeepPlace()
	ss.background.Go(func() { ss.sandboxes.watch(t, attempt) })
	ss.publisher.Publish(ctx, ss.entries.event(t, schemas.Origin{}, schemas.TypeSessionReused, s))
	return t, nil
}
