package session

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// The first wait of forgetLate, which doubles up to the longest.
const (
	lateForgetWait    = 100 * time.Millisecond
	maxLateForgetWait = 10 * time.Second
)

// forget gives a thread up, deletes its session from KV and returns the session's last state, completed by outcome. It holds the thread's claim lock, so
// that a new claim waits until the entry is gone. Errors: lost when another worker owned it by then, unavailable.
func (ss *Sessions) forget(ctx context.Context, t *Thread, why schemas.EventType, outcome func(*schemas.Session)) (last schemas.Session, err error) {
	key := key(t.Tenant, t.ID)
	defer ss.claims.Lock(key)()
	t.Flush(ctx)
	last = ss.Info(t)
	outcome(&last)
	ss.cfg.Subscriptions.Unsubscribe(t.Tenant, t.ID)
	ss.mu.Lock()
	if ss.threads[key] == t {
		delete(ss.threads, key)
	}
	ss.mu.Unlock()
	ss.workspaces.leave(key)
	t.mu.Lock()
	t.withdrawLocked()
	t.mu.Unlock()
	ss.cfg.Places.freed()
	if err := ss.publisher.CheckLease(); err != nil {
		return last, err
	}
	if err := ss.entries.delete(ctx, t); err != nil {
		t.log(ss.publisher.Log.Warn().Err(err)).Msg("delete session")
		ss.background.Go(func() { ss.forgetLate(t, why, last) })
		return last, err // the event is published when the entry goes
	}
	ss.publisher.Publish(ctx, ss.entries.event(t, schemas.Origin{}, why, last))
	return last, nil
}

// forgetLate goes on to delete the entry of a session that has ended, and publishes its end, until that is done, the session is claimed
// again, or the worker loses its lease or ends. What is left then goes when it expires.
func (ss *Sessions) forgetLate(t *Thread, why schemas.EventType, last schemas.Session) {
	for wait := lateForgetWait; ; wait = min(2*wait, maxLateForgetWait) {
		select {
		case <-ss.background.Context().Done():
			return
		case <-time.After(wait):
		}
		if ss.tryForgetLate(t, why, last) {
			return
		}
	}
}

// tryForgetLate is one try of forgetLate. It reports whether another one is not needed, or is in vain.
func (ss *Sessions) tryForgetLate(t *Thread, why schemas.EventType, last schemas.Session) bool {
	ctx := ss.background.Context()
	defer ss.claims.Lock(key(t.Tenant, t.ID))()
	if ss.publisher.CheckLease() != nil {
		return true
	}
	next := ss.Find(t.Tenant, t.ID)
	if next != nil && next.Session.ID == t.Session.ID {
		return true
	}
	if next == nil { // the entry of another session shows that this one's is gone
		switch err := ss.entries.delete(ctx, t); {
		case errors.Is(err, schemas.ErrLost):
			return true
		case err != nil:
			return false
		}
	}
	ss.publisher.Publish(ctx, ss.entries.event(t, schemas.Origin{}, why, last))
	if next == nil {
		ss.workspaces.note(ctx, &last)
	}
	return true
}
