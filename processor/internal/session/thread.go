package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Run is what a thread knows of a run.
type Run interface {
	// Kill ends the run's whole process tree: SIGTERM, and SIGKILL after grace.
	Kill(grace time.Duration)
}

// Thread is a conversation that this worker owns, with its session and, from the first command on, its sandbox.
type Thread struct {
	Tenant, ID string
	// Session is the session as it was claimed. Info returns it as it is now.
	Session schemas.Session
	// Template is the session's, unchanged for as long as this Thread is the worker's.
	Template *schemas.Template

	places *Places
	need   need // of its sandbox

	writing sync.Mutex // held while the session is written to KV

	mu            sync.Mutex
	stored        schemas.Session // as KV has it
	revision      uint64          // of stored
	saved         time.Time       // the last write to KV
	runs          []Run           // in the order in which they came
	busy          int             // uses that have not ended: runs, and hooks after them
	idle          chan struct{}   // closed when busy falls to 0; nil when no caller waits
	lastUsed      time.Time
	reuseReported time.Time // the last session.reused
	attempt       *sandboxAttempt
	parking       chan struct{}                      // closed when the parked sandbox has ended; nil for none
	warm          bool                               // the cold start succeeded
	bound         bool                               // a sandbox has run, see schemas.Session
	termination   *Termination                       // set once the session is being ended
	kept          int                                // how many ends have kept the session
	begun, placed bool                               // it holds a place for its session, and one for a sandbox
	updates       []update                           // to be published
	flushed       chan struct{}                      // closed when they are; nil for none
	syncs         map[schemas.SyncRequest]*syncTurns // under way
}

func (sbs *sandboxes) newThread(tenant, id string, template *schemas.Template, now time.Time) *Thread {
	return &Thread{
		Tenant: tenant, ID: id, Template: template, places: sbs.places, need: needOf(sbs.limitsOf(template).Or(sandbox.DefaultLimits())), lastUsed: now,
		syncs: make(map[schemas.SyncRequest]*syncTurns),
	}
}

// About is what an event of the thread is about that follows from a command with this origin.
func (t *Thread) About(origin schemas.Origin) publisher.About {
	return publisher.About{
		Tenant: t.Tenant, Thread: t.ID, Session: t.Session.ID, Template: cmp.Or(t.Template.Name, DefaultTemplate), Origin: origin,
	}
}

// Enter registers a run: the session is in use until Leave, and its end kills the run. It reports false when the session is being
// ended.
func (t *Thread) Enter(run Run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.termination != nil {
		return false
	}
	t.runs = append(t.runs, run)
	t.busy++
	return true
}

// Leave ends what Enter began. The session is idle from the last end on.
func (t *Thread) Leave(run Run) {
	t.mu.Lock()
	if i := slices.Index(t.runs, run); i >= 0 {
		t.runs = slices.Delete(t.runs, i, i+1)
	}
	t.mu.Unlock()
	t.Release()
}

// Hold keeps the session in use until Release, without a run.
func (t *Thread) Hold() {
	t.mu.Lock()
	t.busy++
	t.mu.Unlock()
}

// Release ends what Hold began.
func (t *Thread) Release() {
	t.mu.Lock()
	t.busy--
	t.lastUsed = time.Now()
	if t.busy == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
	t.mu.Unlock()
	t.YieldPlace()
}

// Busy returns how many runs, and hooks after them, have not ended.
func (t *Thread) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Ending reports whether the session is being ended.
func (t *Thread) Ending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.termination != nil
}

func (t *Thread) endingError() error {
	return schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s is being ended", t.Session.ID, t.ID)
}

// Standing returns the thread's sandbox if it is running, else nil.
func (t *Thread) Standing() sandbox.Sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.attempt; a != nil && a.life.state == schemas.SandboxRunning && !a.ended() {
		return a.sandbox
	}
	return nil
}

// touch starts the session's idle time again.
func (t *Thread) touch() {
	t.mu.Lock()
	t.lastUsed = time.Now()
	t.mu.Unlock()
}

// kill kills the runs, the last one first: the end of one gives no later one its turn.
func (t *Thread) kill(grace time.Duration) {
	t.mu.Lock()
	runs := slices.Clone(t.runs)
	t.mu.Unlock()
	for _, run := range slices.Backward(runs) {
		run.Kill(grace)
	}
}

// whenIdle is closed when nothing uses the session.
func (t *Thread) whenIdle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle != nil {
		return t.idle
	}
	idle := make(chan struct{})
	if t.busy == 0 {
		close(idle)
	} else {
		t.idle = idle
	}
	return idle
}

func (t *Thread) log(line *zerolog.Event) *zerolog.Event {
	return publisher.LogSession(line, t.ID, t.Session.ID)
}

// Flush waits until all updates are published, or ctx ends.
func (t *Thread) Flush(ctx context.Context) {
	for {
		t.mu.Lock()
		flushed := t.flushed
		t.mu.Unlock()
		if flushed == nil {
			return
		}
		select {
		case <-flushed:
		case <-ctx.Done():
			return
		}
	}
}
