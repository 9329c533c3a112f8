package processor

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// thread is a conversation this worker owns, with its session and, from the first command on, its sandbox.
type thread struct {
	tenant, thread string
	session        schemas.Session   // as it was claimed: what changes later is in now
	template       *schemas.Template // what it is made by; the same for as long as it is owned

	writing sync.Mutex // held while the session is written to KV

	mu       sync.Mutex
	now      schemas.Session // as KV has it
	revision uint64
	saved    time.Time // when it was written last
	busy     int       // runs not ended
	last     time.Time
	reused   time.Time // when it was told last that the session was found again
	making   *making
	parking  chan struct{}   // closed when the sandbox that was parked is gone; nil where there is none
	warm     bool            // its cold start went well
	ending   *ending         // set once its session is being ended
	quiet    chan struct{}   // closed when nothing runs; nil where nobody waits for that
	talking  <-chan struct{} // closed when the last message is through; nil for none
	notes    []note          // to be told
	noting   chan struct{}   // closed when they are; nil where there are none
}

func threadKey(tenant, thread string) string { return tenant + "." + thread }

// claimTries bounds how often a claim that lost a race is tried again.
const claimTries = 4

// claimed is who has a thread.
type claimed struct {
	thread  *thread // nil where it is another worker's
	owner   string
	session *schemas.Session // as it was found or made
	created bool             // it was made now
}

// errRaced says that somebody else changed a session at the same time.
var errRaced = errors.New("lost a race")

// claim makes this worker the owner of a thread, or says who is. Errors: those of resolve, of newSession and of wants.fits,
// unavailable.
func (w *Worker) claim(ctx context.Context, tenant, id string, v wants) (claimed, error) {
	key := threadKey(tenant, id)
	defer w.claims.lock(key)()
	w.mu.Lock()
	t, leaving := w.threads[key], w.leaving || w.isFenced()
	w.mu.Unlock()
	if t != nil {
		return claimed{thread: t, owner: w.cfg.Worker, session: &t.session}, v.fits(&t.session)
	}
	if leaving {
		return claimed{}, schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", w.cfg.Worker).With(schemas.DetailDeclined, "shutdown")
	}
	var c claimed
	err := errRaced
	for range claimTries {
		if c, err = w.tryClaim(ctx, tenant, id, &v); !errors.Is(err, errRaced) {
			break
		}
	}
	if errors.Is(err, errRaced) {
		err = schemas.Errorf(schemas.CodeUnavailable, "the session of thread %s changes hands: try again", id)
	}
	if err != nil || c.thread == nil {
		return c, err
	}
	if err := w.cfg.Subscriptions.Subscribe(ctx, tenant, id); err != nil {
		w.cfg.Subscriptions.Unsubscribe(tenant, id)
		return claimed{}, err
	}
	w.mu.Lock()
	w.threads[key] = c.thread
	w.mu.Unlock()
	return c, nil
}

func (w *Worker) tryClaim(ctx context.Context, tenant, id string, v *wants) (claimed, error) {
	now := time.Now().UTC()
	s, revision, err := w.cfg.Sessions.Session(ctx, tenant, id)
	typ := schemas.TypeSessionReused
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		if s, err = w.newSession(tenant, id, v, now); err != nil {
			return claimed{}, err
		}
		typ = schemas.TypeSessionCreated
	case err != nil:
		return claimed{}, err
	default:
		alive := false
		if s.Owner != w.cfg.Worker {
			if alive, err = w.cfg.Roster.LeaseAlive(ctx, s.Owner); err != nil {
				return claimed{}, err
			}
		}
		if !alive && !v.lapsed && lapsed(s, now) {
			if err := w.endOrphan(ctx, s, revision); err != nil && !errors.Is(err, schemas.ErrConflict) {
				return claimed{}, err
			}
			return claimed{}, errRaced // the next look finds none
		}
		if err := v.fits(s); err != nil {
			return claimed{}, err
		}
		if alive {
			return claimed{owner: s.Owner, session: s}, nil
		}
	}
	if _, err := w.resolve(kind{s.Provider, s.Image}); err != nil {
		return claimed{}, err
	}
	recipe, err := w.template(s.Template)
	if err != nil {
		return claimed{}, err
	}
	t := &thread{tenant: tenant, thread: id, template: recipe, last: now}
	s.Owner, s.Epoch, s.Workspace = w.cfg.Worker, s.Epoch+1, w.workspace(tenant, id)
	w.stamp(t, s)
	revision, err = w.cfg.Sessions.SaveSession(ctx, s, revision)
	if errors.Is(err, schemas.ErrConflict) {
		return claimed{}, errRaced
	}
	if err != nil {
		return claimed{}, err
	}
	w.publish(ctx, w.event(typ, tenant, id, s.ID, "", s))
	t.session, t.now, t.revision, t.saved = *s, *s, revision, now
	return claimed{thread: t, owner: w.cfg.Worker, session: &t.session, created: typ == schemas.TypeSessionCreated}, nil
}

// workspace is the folder of a thread on this machine.
func (w *Worker) workspace(tenant, thread string) string {
	return filepath.Join(w.cfg.Workspaces, tenant, thread)
}

// publish writes an event that informs and decides nothing: when it cannot be written, that is logged.
func (w *Worker) publish(ctx context.Context, ev *schemas.Event) {
	if w.isFenced() {
		return // another worker may speak for what this one ran
	}
	if err := w.cfg.Records.Publish(ctx, ev); err != nil {
		w.cfg.Log.Warn().Err(err).Str("type", string(ev.Type)).Str("thread", ev.Thread).Msg("event not published")
	}
}

// begin and end count a run of the thread. The session is idle from the last end on.
func (t *thread) begin() {
	t.mu.Lock()
	t.busy++
	t.mu.Unlock()
}

func (t *thread) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	t.last = time.Now()
	if t.busy == 0 && t.quiet != nil {
		close(t.quiet)
		t.quiet = nil
	}
}

// touch begins the session's idle time anew.
func (t *thread) touch() {
	t.mu.Lock()
	t.last = time.Now()
	t.mu.Unlock()
}

// ends says whether the thread's session is being ended.
func (t *thread) ends() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending != nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
