package session

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// The waits between two tries to delete the entry of a session that has ended; they double.
const (
	firstDeleteWait = 100 * time.Millisecond
	maxDeleteWait   = 10 * time.Second
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
		u := undeleted{ss, t, why, last}
		ss.background.Go(u.insist)
		return last, err // the event is published when the entry goes
	}
	ss.publisher.Publish(ctx, ss.entries.event(t, schemas.Origin{}, why, last))
	return last, nil
}

// undeleted is a session that has ended, and whose entry is still in KV.
type undeleted struct {
	sessions *Sessions
	thread   *Thread
	why      schemas.EventType
	last     schemas.Session
}

// insist goes on to delete the entry, and publishes the session's end, until that is done, the session is claimed again, or the worker
// loses its lease or ends. What is left then goes when it expires.
func (u *undeleted) insist() {
	for wait := firstDeleteWait; !u.try(); wait = min(2*wait, maxDeleteWait) {
		select {
		case <-u.sessions.background.Context().Done():
			return
		case <-time.After(wait):
		}
	}
}

// try reports whether another try is not needed, or is in vain.
func (u *undeleted) try() bool {
	ss, t := u.sessions, u.thread
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
	ss.publisher.Publish(ctx, ss.entries.event(t, schemas.Origin{}, u.why, u.last))
	if next == nil {
		ss.workspaces.note(ctx, &u.last)
	}
	return true
}
