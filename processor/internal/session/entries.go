package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// entries are what KV has of the sessions of owned threads. They write the changes, and publish each session's events in order.
type entries struct {
	store       Store
	owed        Owed // nil for none
	template    func(name string) (*schemas.Template, error)
	idleDefault time.Duration // when neither the session nor its template sets an idle timeout
	publisher   *publisher.Publisher
	background  *work.Background
}

// info returns the thread's session as it is now.
func (es *entries) info(t *Thread) schemas.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stored
	es.stamp(t, &s)
	return s
}

// stamp sets a session's times. The caller holds t.mu, or alone knows t.
func (es *entries) stamp(t *Thread, s *schemas.Session) {
	lastUsed := t.lastUsed
	if t.busy > 0 {
		lastUsed = time.Now()
	}
	s.LastActivity = lastUsed.UTC()
	s.Expires = s.LastActivity.Add(es.idleTimeout(s, t.Template))
}

// idleTimeout is how long a session may run nothing.
func (es *entries) idleTimeout(s *schemas.Session, template *schemas.Template) time.Duration {
	for _, ms := range []int64{s.IdleTimeoutMS, template.Session.IdleTimeoutMS} {
		if ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return es.idleDefault
}

// change writes the thread's session to KV, changed by edit. No other code changes a session that this worker owns. Errors: lost
// when another worker owns the session, unavailable.
func (es *entries) change(ctx context.Context, t *Thread, edit func(*schemas.Session)) (*schemas.Session, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	for range claimTries {
		if err := es.publisher.CheckLease(); err != nil {
			return nil, err
		}
		t.mu.Lock()
		s, revision := t.stored, t.revision
		edit(&s)
		es.stamp(t, &s)
		t.mu.Unlock()
		revision, err := es.store.SaveSession(ctx, &s, revision)
		if errors.Is(err, schemas.ErrConflict) {
			// Either an earlier write of this worker whose ack was lost, or another owner's write.
			if err = es.reread(ctx, t); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		t.stored, t.revision, t.saved = s, revision, time.Now()
		t.mu.Unlock()
		return &s, nil
	}
	return nil, schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s changes too often: try again", t.ID)
}

// reread takes over what KV has of the thread's session. Errors: lost, unavailable.
func (es *entries) reread(ctx context.Context, t *Thread) error {
	s, revision, err := es.store.Session(ctx, t.Tenant, t.ID)
	mine := err == nil && s.ID == t.Session.ID && s.Owner == es.publisher.Worker && s.Epoch == t.Session.Epoch
	if errors.Is(err, schemas.ErrNotFound) || (err == nil && !mine) {
		return schemas.Errorf(schemas.CodeLost, "worker %s no longer owns session %s of thread %s", es.publisher.Worker, t.Session.ID, t.ID)
	}
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.stored, t.revision = *s, revision
	t.mu.Unlock()
	return nil
}

// delete removes the thread's session from KV. Errors: lost, unavailable.
func (es *entries) delete(ctx context.Context, t *Thread) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	for {
		t.mu.Lock()
		revision := t.revision
		t.mu.Unlock()
		err := es.store.DeleteSession(ctx, &t.Session, revision)
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		switch _, _, readErr := es.store.Session(ctx, t.Tenant, t.ID); {
		case errors.Is(readErr, schemas.ErrNotFound):
			return nil // this worker's own delete, whose ack was lost: no other worker deletes what a live owner has
		case readErr != nil:
			return readErr
		}
		if err := es.reread(ctx, t); err != nil {
			return err
		}
	}
}

// event makes an event of the thread's session. origin is that of the command from which it follows; zero for none.
func (es *entries) event(t *Thread, origin schemas.Origin, typ schemas.EventType, data any) *schemas.Event {
	return es.publisher.Event(typ, t.About(origin), data)
}

// update is an event of a thread, a change of its session in KV, or both.
type update struct {
	event *schemas.Event
	edit  func(*schemas.Session)
	end   bool // of a sandbox
}

// update publishes in the order of the calls, and does not wait for it: no command waits for what only informs.
func (es *entries) update(t *Thread, u update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	es.updateLocked(t, u)
}

// updateLocked is update for a caller that holds t.mu.
func (es *entries) updateLocked(t *Thread, u update) {
	if t.flushed == nil {
		flushed := make(chan struct{})
		if !es.background.Go(func() { es.publishUpdates(t, flushed) }) {
			return // the worker has ended
		}
		t.flushed = flushed
	}
	t.updates = append(t.updates, u)
}

// publishUpdates publishes until there are no more updates. Changes that come together are one write, before their events: who has seen an
// event finds in KV what it reports. The end of a sandbox is published first, since a worker that takes the session over reports no end that
// KV has already.
func (es *entries) publishUpdates(t *Thread, flushed chan struct{}) {
	defer close(flushed)
	ctx := es.background.Context()
	for {
		t.mu.Lock()
		updates := t.updates
		t.updates = nil
		if len(updates) == 0 {
			t.flushed = nil
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		publish := func() {
			for _, u := range updates {
				if u.event != nil {
					es.publisher.Publish(ctx, u.event)
				}
			}
		}
		ends := slices.ContainsFunc(updates, func(u update) bool { return u.end })
		if ends {
			publish()
		}
		es.save(ctx, t, updates)
		if !ends {
			publish()
		}
	}
}

// save writes the changes of updates, if there are any.
func (es *entries) save(ctx context.Context, t *Thread, updates []update) {
	if !slices.ContainsFunc(updates, func(u update) bool { return u.edit != nil }) {
		return
	}
	_, err := es.change(ctx, t, func(s *schemas.Session) {
		for _, u := range updates {
			if u.edit != nil {
				u.edit(s)
			}
		}
	})
	if err != nil && !es.publisher.Fenced() {
		t.log(es.publisher.Log.Warn().Err(err)).Msg("session not saved")
	}
}

// reuseInterval is the shortest time between two session.reused events of a session: a client that asks for it before each of
// thousands of commands a second is one user of it.
const reuseInterval = 100 * time.Millisecond

func (es *entries) reportReuse(t *Thread, origin schemas.Origin, current *schemas.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastUsed = time.Now()
	if t.lastUsed.Sub(t.reuseReported) < reuseInterval {
		return
	}
	t.reuseReported = t.lastUsed
	es.updateLocked(t, update{event: es.event(t, origin, schemas.TypeSessionReused, current)})
}

// maxStale is how old the last activity in KV may be, unless the idle timeout asks for less: no command waits for a write to KV.
const maxStale = 30 * time.Second

// expired reports whether a session has run nothing for its idle timeout, or has reached its deadline. The caller holds t.mu.
func (es *entries) expired(t *Thread, now time.Time) bool {
	if t.termination != nil {
		return false
	}
	if d := t.stored.Deadline; !d.IsZero() && now.After(d) {
		return true
	}
	return t.busy == 0 && now.Sub(t.lastUsed) > es.idleTimeout(&t.stored, t.Template)
}

// stale reports whether the session's activity should be saved. The caller holds t.mu.
func (es *entries) stale(t *Thread, now time.Time) bool {
	every := min(maxStale, es.idleTimeout(&t.stored, t.Template)/4)
	return t.termination == nil && now.Sub(t.saved) > every && (t.busy > 0 || t.lastUsed.After(t.saved))
}

// deleteOrphan deletes an expired session that no worker runs, and reports it. Its worker may have changed the workspace since the last
// push: it pushes when it is back. Errors: conflict when another worker was first, unavailable.
func (es *entries) deleteOrphan(ctx context.Context, s *schemas.Session, revision uint64) error {
	if err := es.oweOrphan(ctx, s); err != nil {
		return err
	}
	if err := es.store.DeleteSession(ctx, s, revision); err != nil {
		return err
	}
	about := publisher.About{Tenant: s.Tenant, Thread: s.Thread, Session: s.ID, Template: cmp.Or(s.Template, DefaultTemplate)}
	es.publisher.Publish(ctx, es.publisher.Event(schemas.TypeSessionExpired, about, s))
	es.publisher.Log.Info().Str("thread", s.Thread).Str("session_id", s.ID).Str("dead_worker", s.Owner).Msg("session_expired")
	return nil
}

// oweOrphan notes that a dead worker may owe a push, before the entry that names this worker is deleted. An entry without a sandbox does not
// show that none ran: it is stored later. A worker without the workspace gives the push up.
func (es *entries) oweOrphan(ctx context.Context, s *schemas.Session) error {
	if es.owed == nil {
		return nil
	}
	if t, err := es.template(s.Template); err == nil && t.Sync == nil {
		return nil // else its own worker has the template, and decides
	}
	return es.owed.SaveOwed(ctx, &schemas.OwedPush{
		Tenant: s.Tenant, Thread: s.Thread, Worker: s.Owner, Session: s.ID, Epoch: s.Epoch, User: s.User, Template: s.Template, Since: time.Now().UTC(),
		Error: schemas.Errorf(schemas.CodeUnavailable, "worker %s died before the session expired", s.Owner),
	})
}
