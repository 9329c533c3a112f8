package processor

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// calmly is how many sessions a worker expires, or parks, at a time: they may all fall due at once.
const calmly = 64

// maxStale is how old the last activity that KV knows of may be, where the idle timeout does not ask for less: no command
// waits for a write to KV.
const maxStale = 30 * time.Second

// sweep looks at every thread once: ends the sessions that have expired, parks, and saves what KV should know by now. It
// returns the endings it began.
func (w *Worker) sweep(ctx context.Context) []*ending {
	w.mu.Lock()
	threads := make([]*thread, 0, len(w.threads))
	for _, t := range w.threads {
		threads = append(threads, t)
	}
	w.mu.Unlock()
	var begun []*ending
	for _, t := range threads {
		now := time.Now()
		t.mu.Lock()
		expired, parkable, stale := w.expired(t, now), t.parkable(now), w.stale(t, now)
		t.mu.Unlock()
		switch {
		case expired:
			e, err := w.beginEnd(t, &ending{why: schemas.TypeSessionExpired}, func() bool { return w.expired(t, time.Now()) })
			if err == nil && e != nil {
				begun = append(begun, e)
			}
		case parkable:
			w.park(t)
		case stale:
			w.note(t, note{edit: func(*schemas.Session) {}})
		}
		if ctx.Err() != nil {
			break
		}
	}
	return begun
}

// expired says whether a session has run nothing for its idle timeout, or has had its lifetime. t.mu is held.
func (w *Worker) expired(t *thread, now time.Time) bool {
	if t.ending != nil {
		return false
	}
	if d := t.now.Deadline; !d.IsZero() && now.After(d) {
		return true
	}
	return t.busy == 0 && now.Sub(t.last) > w.idleTimeout(&t.now, t.template)
}

// stale says whether KV should be told of the session's activity. t.mu is held.
func (w *Worker) stale(t *thread, now time.Time) bool {
	every := min(maxStale, w.idleTimeout(&t.now, t.template)/4)
	return t.ending == nil && now.Sub(t.saved) > every && (t.busy > 0 || t.last.After(t.saved))
}

// reapOrphans ends the sessions that have expired and that nobody runs: their owner has died, or has begun anew since. What any
// worker needs for that stands in KV, so that it is done even where all of them were killed at once.
func (w *Worker) reapOrphans(ctx context.Context) {
	type orphan struct {
		session  *schemas.Session
		revision uint64
	}
	var due []orphan
	now := time.Now()
	err := w.cfg.Sessions.EachSession(ctx, func(s *schemas.Session, revision uint64) error {
		if lapsed(s, now) {
			due = append(due, orphan{s, revision})
		}
		return nil
	})
	if err != nil {
		w.cfg.Log.Debug().Err(err).Msg("list sessions")
	}
	alive := map[string]bool{}
	for _, o := range due {
		if ctx.Err() != nil {
			return
		}
		if o.session.Owner == w.cfg.Worker {
			w.reapOwn(ctx, o.session)
			continue
		}
		lives, known := alive[o.session.Owner]
		if !known {
			if lives, err = w.cfg.Roster.LeaseAlive(ctx, o.session.Owner); err != nil {
				continue
			}
			alive[o.session.Owner] = lives
		}
		if lives {
			continue // its own clock decides
		}
		// A conflict: somebody took it over, or was first.
		if err := w.endOrphan(ctx, o.session, o.revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
			w.cfg.Log.Warn().Err(err).Str("thread", o.session.Thread).Msg("delete session")
		}
	}
}

// reapOwn ends a session that an earlier incarnation of this worker left, the way it would have: what is in its folder here may
// not have been pushed yet.
func (w *Worker) reapOwn(ctx context.Context, s *schemas.Session) {
	if w.threadOf(s.Tenant, s.Thread) != nil {
		return
	}
	c, err := w.claim(ctx, s.Tenant, s.Thread, wants{session: s.ID, existing: true, lapsed: true})
	if err != nil || c.thread == nil {
		w.cfg.Log.Debug().Err(err).Str("thread", s.Thread).Msg("claim an expired session")
		return
	}
	idle := func() bool { return c.thread.busy == 0 }
	if _, err := w.beginEnd(c.thread, &ending{why: schemas.TypeSessionExpired}, idle); err != nil {
		w.cfg.Log.Debug().Err(err).Str("thread", s.Thread).Msg("end an expired session")
	}
}

// lapsed says whether a session that nobody runs has expired. What KV knows of its last activity may be behind: it is given the
// benefit of that.
func lapsed(s *schemas.Session, now time.Time) bool {
	behind := min(maxStale, s.Expires.Sub(s.LastActivity)/4)
	return past(s.Deadline, now) || (!s.Expires.IsZero() && past(s.Expires.Add(behind), now))
}

func past(t, now time.Time) bool { return !t.IsZero() && t.Before(now) }

// endOrphan takes an expired session that nobody runs out of KV, and tells of it. Errors: conflict where somebody was first.
func (w *Worker) endOrphan(ctx context.Context, s *schemas.Session, revision uint64) error {
	if err := w.cfg.Sessions.DeleteSession(ctx, s, revision); err != nil {
		return err
	}
	w.publish(ctx, w.event(schemas.TypeSessionExpired, s.Tenant, s.Thread, s.ID, "", s))
	w.cfg.Log.Info().Str("thread", s.Thread).Str("session_id", s.ID).Str("dead_worker", s.Owner).Msg("session_expired")
	return nil
}
