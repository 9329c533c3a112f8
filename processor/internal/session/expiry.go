package session

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// maxStale is how old the last activity in KV may be, unless the idle timeout asks for less: no command waits for a write to KV.
const maxStale = 30 * time.Second

// Sweep looks at every thread once: it ends the sessions that have expired, parks idle ones, and saves their activity. It returns
// the ends that it started.
func (ss *Sessions) Sweep(ctx context.Context) []*Termination {
	var started []*Termination
	for _, t := range ss.all() {
		now := time.Now()
		t.mu.Lock()
		expired, parkable, stale := ss.expired(t, now), t.parkable(now), ss.stale(t, now)
		t.mu.Unlock()
		switch {
		case expired:
			end, err := ss.terminate(t, &Termination{event: schemas.TypeSessionExpired}, func() bool { return ss.expired(t, time.Now()) })
			if err == nil && end != nil {
				started = append(started, end)
			}
		case parkable:
			ss.park(t)
		case stale:
			ss.update(t, update{edit: func(*schemas.Session) {}})
		}
		if ctx.Err() != nil {
			break
		}
	}
	return started
}

// expired reports whether a session has run nothing for its idle timeout, or has reached its deadline. The caller holds t.mu.
func (ss *Sessions) expired(t *Thread, now time.Time) bool {
	if t.termination != nil {
		return false
	}
	if d := t.stored.Deadline; !d.IsZero() && now.After(d) {
		return true
	}
	return t.busy == 0 && now.Sub(t.lastUsed) > ss.idleTimeout(&t.stored, t.Template)
}

// stale reports whether the session's activity should be saved. The caller holds t.mu.
func (ss *Sessions) stale(t *Thread, now time.Time) bool {
	every := min(maxStale, ss.idleTimeout(&t.stored, t.Template)/4)
	return t.termination == nil && now.Sub(t.saved) > every && (t.busy > 0 || t.lastUsed.After(t.saved))
}

// parkable reports whether the thread's sandbox is running and has been idle for the template's park time. The caller holds t.mu.
func (t *Thread) parkable(now time.Time) bool {
	after, a := time.Duration(t.Template.Session.ParkAfterMS)*time.Millisecond, t.attempt
	if after == 0 || t.busy > 0 || t.termination != nil || t.parking != nil || a == nil || now.Sub(t.lastUsed) < after {
		return false
	}
	select {
	case <-a.done:
		return a.err == nil && a.life.state == schemas.SandboxRunning
	default:
		return false
	}
}

// park ends the sandbox of an idle session. The session and its workspace stay; the next command creates another sandbox, which
// waits until this one has ended.
func (ss *Sessions) park(t *Thread) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.parkable(time.Now()) {
		return // a command came since
	}
	a, parked := t.attempt, make(chan struct{})
	if !ss.background.Go(func() { ss.endParked(t, a, parked) }) {
		return
	}
	t.attempt, t.parking = nil, parked
	ss.updateLocked(t, update{edit: func(s *schemas.Session) { s.Parked = true }})
}

func (ss *Sessions) endParked(t *Thread, a *sandboxAttempt, parked chan struct{}) {
	ss.drainSlots <- struct{}{}
	defer func() { <-ss.drainSlots }()
	ctx, cancel := context.WithTimeout(ss.background.Context(), ss.cfg.Timeouts.SandboxEnd)
	defer cancel()
	_ = a.sandbox.Terminate(ctx, 0) // its error is ctx's: the supervisor still ends with the worker
	ss.apply(t, a, occurEnd, nil)
	t.mu.Lock()
	t.parking = nil
	t.mu.Unlock()
	close(parked)
}

// SweepOrphans ends the sessions that have expired and that no worker runs: their owner has died, or has restarted since. KV holds
// all that any worker needs for that, so that it is done even when all workers were killed at once.
func (ss *Sessions) SweepOrphans(ctx context.Context) {
	type orphan struct {
		session  *schemas.Session
		revision uint64
	}
	var due []orphan
	now := time.Now()
	err := ss.cfg.Store.EachSession(ctx, func(s *schemas.Session, revision uint64) error {
		if orphanExpired(s, now) {
			due = append(due, orphan{s, revision})
		}
		return nil
	})
	if err != nil {
		ss.publisher.Log.Debug().Err(err).Msg("list sessions")
	}
	alive := map[string]bool{}
	for _, o := range due {
		if ctx.Err() != nil {
			return
		}
		if o.session.Owner == ss.publisher.Worker {
			ss.endLeftover(ctx, o.session)
			continue
		}
		lives, known := alive[o.session.Owner]
		if !known {
			if lives, err = ss.cfg.LeaseAlive(ctx, o.session.Owner); err != nil {
				continue
			}
			alive[o.session.Owner] = lives
		}
		if lives {
			continue // the owner's clock decides
		}
		// A conflict: another worker claimed it, or deleted it first.
		if err := ss.deleteOrphan(ctx, o.session, o.revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
			ss.publisher.Log.Warn().Err(err).Str("thread", o.session.Thread).Msg("delete session")
		}
	}
}

// endLeftover ends a session that an earlier incarnation of this worker left, with its hooks: the workspace on this machine may
// hold changes that were not pushed.
func (ss *Sessions) endLeftover(ctx context.Context, s *schemas.Session) {
	if ss.Find(s.Tenant, s.Thread) != nil {
		return
	}
	claim, err := ss.Claim(ctx, s.Tenant, s.Thread, Request{Session: s.ID, Existing: true, expired: true})
	if err != nil || claim.Thread == nil {
		ss.publisher.Log.Debug().Err(err).Str("thread", s.Thread).Msg("claim an expired session")
		return
	}
	idle := func() bool { return claim.Thread.busy == 0 }
	if _, err := ss.terminate(claim.Thread, &Termination{event: schemas.TypeSessionExpired}, idle); err != nil {
		ss.publisher.Log.Debug().Err(err).Str("thread", s.Thread).Msg("end an expired session")
	}
}

// orphanExpired reports whether a session that no worker runs has expired. Its last activity in KV may be stale: that much time is
// added.
func orphanExpired(s *schemas.Session, now time.Time) bool {
	behind := min(maxStale, s.Expires.Sub(s.LastActivity)/4)
	return past(s.Deadline, now) || (!s.Expires.IsZero() && past(s.Expires.Add(behind), now))
}

func past(t, now time.Time) bool { return !t.IsZero() && t.Before(now) }

// deleteOrphan deletes an expired session that no worker runs, and reports it. Errors: conflict when another worker was first.
func (ss *Sessions) deleteOrphan(ctx context.Context, s *schemas.Session, revision uint64) error {
	if err := ss.cfg.Store.DeleteSession(ctx, s, revision); err != nil {
		return err
	}
	ss.publisher.Publish(ctx, ss.publisher.Event(schemas.TypeSessionExpired, s.Tenant, s.Thread, s.ID, "", s))
	ss.publisher.Log.Info().Str("thread", s.Thread).Str("session_id", s.ID).Str("dead_worker", s.Owner).Msg("session_expired")
	return nil
}
