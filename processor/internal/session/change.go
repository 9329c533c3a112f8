package session

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Info returns the thread's session as it is now.
func (ss *Sessions) Info(t *Thread) schemas.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stored
	ss.stamp(t, &s)
	return s
}

// stamp sets a session's times. The caller holds t.mu, or alone knows t.
func (ss *Sessions) stamp(t *Thread, s *schemas.Session) {
	lastUsed := t.lastUsed
	if t.busy > 0 {
		lastUsed = time.Now()
	}
	s.LastActivity = lastUsed.UTC()
	s.Expires = s.LastActivity.Add(ss.idleTimeout(s, t.Template))
}

// idleTimeout is how long a session may run nothing.
func (ss *Sessions) idleTimeout(s *schemas.Session, template *schemas.Template) time.Duration {
	for _, ms := range []int64{s.IdleTimeoutMS, template.Session.IdleTimeoutMS} {
		if ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	return ss.cfg.IdleTimeout
}

// change writes the thread's session to KV, changed by edit. No other code changes a session that this worker owns. Errors: lost
// when another worker owns the session, unavailable.
func (ss *Sessions) change(ctx context.Context, t *Thread, edit func(*schemas.Session)) (*schemas.Session, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	for range claimTries {
		if err := ss.publisher.CheckLease(); err != nil {
			return nil, err
		}
		t.mu.Lock()
		s, revision := t.stored, t.revision
		edit(&s)
		ss.stamp(t, &s)
		t.mu.Unlock()
		revision, err := ss.cfg.Store.SaveSession(ctx, &s, revision)
		if errors.Is(err, schemas.ErrConflict) {
			// Either an earlier write of this worker whose ack was lost, or another owner's write.
			if err = ss.reread(ctx, t); err == nil {
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
func (ss *Sessions) reread(ctx context.Context, t *Thread) error {
	s, revision, err := ss.cfg.Store.Session(ctx, t.Tenant, t.ID)
	mine := err == nil && s.ID == t.Session.ID && s.Owner == ss.publisher.Worker && s.Epoch == t.Session.Epoch
	if errors.Is(err, schemas.ErrNotFound) || (err == nil && !mine) {
		return schemas.Errorf(schemas.CodeLost, "worker %s no longer owns session %s of thread %s", ss.publisher.Worker, t.Session.ID, t.ID)
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
func (ss *Sessions) delete(ctx context.Context, t *Thread) error {
	t.writing.Lock()
	defer t.writing.Unlock()
	for {
		t.mu.Lock()
		revision := t.revision
		t.mu.Unlock()
		err := ss.cfg.Store.DeleteSession(ctx, &t.Session, revision)
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		switch _, _, readErr := ss.cfg.Store.Session(ctx, t.Tenant, t.ID); {
		case errors.Is(readErr, schemas.ErrNotFound):
			return nil // this worker's own delete, whose ack was lost: no other worker deletes what a live owner has
		case readErr != nil:
			return readErr
		}
		if err := ss.reread(ctx, t); err != nil {
			return err
		}
	}
}

// Amend changes the session of a thread that this worker owns. Errors: session_expired when the thread has another session or
// none here, lost, unavailable.
func (ss *Sessions) Amend(ctx context.Context, tenant, thread, session string, edit func(*schemas.Session)) error {
	t := ss.Find(tenant, thread)
	if t == nil || t.Session.ID != session {
		return schemas.Errorf(schemas.CodeSessionExpired, "worker %s does not own session %.128s of thread %s", ss.publisher.Worker, session, thread)
	}
	_, err := ss.change(ctx, t, edit)
	return err
}

// Owns returns nil while this worker owns a thread under an epoch, by KV and by its lease. Errors: lost, unavailable.
func (ss *Sessions) Owns(ctx context.Context, tenant, thread string, epoch uint64) error {
	if !ss.publisher.Fenced() {
		s, _, err := ss.cfg.Store.Session(ctx, tenant, thread)
		if err != nil && !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
		// The lease is checked last: the read may have taken long.
		if err == nil && s.Owner == ss.publisher.Worker && s.Epoch == epoch && !ss.publisher.Fenced() {
			return nil
		}
	}
	return schemas.Errorf(schemas.CodeLost, "worker %s no longer owns thread %s under epoch %d: another worker may", ss.publisher.Worker, thread, epoch)
}
