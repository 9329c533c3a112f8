package session

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Sweep looks at every thread once: it ends the sessions that have expired, parks idle ones, and saves their activity. It returns
// the ends that it started.
func (ss *Sessions) Sweep(ctx context.Context) []*Termination {
	var started []*Termination
	for _, t := range ss.all() {
		now := time.Now()
		t.mu.Lock()
		expired, parkable, stale := ss.entries.expired(t, now), t.parkable(now), ss.entries.stale(t, now)
		t.mu.Unlock()
		switch {
		case expired:
			end, err := ss.terminate(t, &Termination{event: schemas.TypeSessionExpired}, func() bool { return ss.entries.expired(t, time.Now()) })
			if err == nil && end != nil {
				started = append(started, end)
			}
		case parkable:
			ss.sandboxes.park(t)
		case stale:
			ss.entries.update(t, update{edit: func(*schemas.Session) {}})
		}
		if ctx.Err() != nil {
			break
		}
	}
	return started
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
		if err := ss.entries.deleteOrphan(ctx, o.session, o.revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
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
