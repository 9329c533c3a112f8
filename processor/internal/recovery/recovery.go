package recovery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Roster lists the workers, and what dead ones left behind.
type Roster interface {
	// LeaseAlive reports whether a worker's lease has not lapsed.
	LeaseAlive(ctx context.Context, worker string) (bool, error)
	// Worker reads the entry of a worker. Errors: not_found.
	Worker(ctx context.Context, id string) (schemas.WorkerInfo, error)
	// Workers lists the registered workers, dead ones too. The list may be behind.
	Workers(ctx context.Context) ([]schemas.WorkerInfo, error)
	// Unregister removes a worker from the list, unless a later incarnation has replaced its entry.
	Unregister(ctx context.Context, w schemas.WorkerInfo) error
}

// History finds the processes that a worker accepted from a sequence on and left without an end.
type History interface {
	Unfinished(ctx context.Context, worker string, from uint64) ([]*schemas.Event, error)
}

// Recovery recovers workers: this one, when it starts, and dead ones. All fields but Lost are required.
type Recovery struct {
	Publisher  *publisher.Publisher
	Background *work.Background
	Sessions   *session.Sessions
	Runs       *run.Runs
	Roster     Roster
	History    History
	Providers  map[string]sandbox.Provider
	// Lost is called with a worker whose lease has lapsed, after its processes. Nil: nothing is called.
	Lost      func(ctx context.Context, worker string) error
	Temporary bool // what this worker cannot go on with may be the next one's

	steps    []func() // to go on with what was found
	found    []sandbox.Attached
	attached map[string]bool // the providers whose sandboxes were found
	left     map[string]bool // the threads of the sandboxes that were not adopted
}

// Reattach finds what an earlier incarnation of this worker left running: its sandboxes with their threads, and the processes in
// them whose end is not on record, which count as running from here on. Sandboxes and processes that are no longer this worker's
// are to be ended. Nothing of this happens before Start is called: a worker that cannot start must leave everything as it is.
// Errors: unavailable.
func (rc *Recovery) Reattach(ctx context.Context) error {
	rc.attached, rc.left = make(map[string]bool), make(map[string]bool)
	for name, provider := range rc.Providers {
		reattacher, ok := provider.(sandbox.Reattacher)
		if !ok {
			continue
		}
		found, err := reattacher.Attach(ctx)
		if err != nil {
			// Its processes are reported as lost: whether they still run is unknown.
			rc.Publisher.Log.Warn().Err(err).Str("provider", name).Msg("cannot list the sandboxes of an earlier incarnation")
			continue
		}
		rc.attached[name] = true
		for _, sb := range found {
			rc.found = append(rc.found, sb)
			steps, err := rc.reattach(ctx, name, sb)
			if err != nil {
				return err
			}
			for _, step := range steps {
				rc.steps = append(rc.steps, func() { rc.Runs.Go(step) })
			}
		}
	}
	return nil
}

// Start goes on with what Reattach and Recover found.
func (rc *Recovery) Start() {
	for _, step := range rc.steps {
		step()
	}
}

// stop ends a session that an earlier incarnation of this worker was ending when it died. What else the stop asked for is lost with that
// incarnation, as its answer is.
func (rc *Recovery) stop(ctx context.Context, t *session.Thread) {
	req := schemas.SessionControl{Tenant: t.Tenant, Thread: t.ID, Stop: &schemas.StopRequest{Session: t.Session.ID, GraceMS: new(int64)}}
	rc.Sessions.Control(ctx, req, func(r schemas.SessionReply) {
		if r.Error != nil {
			publisher.LogSession(rc.Publisher.Log.Warn().Err(r.Error), t.ID, t.Session.ID).Msg("session stays, although its stop was under way")
		}
	})
}

// reattach gives a sandbox back to its thread, or ends it. A temporary worker may lack its template: it leaves the sandbox.
func (rc *Recovery) reattach(ctx context.Context, provider string, sb sandbox.Attached) (steps []func(), err error) {
	t, err := rc.Sessions.Adopt(ctx, provider, sb)
	if err != nil {
		return nil, err
	}
	if t == nil && rc.Temporary {
		rc.left[sb.Spec().Thread] = true
		return nil, nil
	}
	if t == nil {
		rc.Publisher.Log.Info().Str("sandbox", sb.ID()).Str("thread", sb.Spec().Thread).Msg("sandbox_stale")
		// An end that its context cuts short goes on by itself.
		return []func(){func() { _ = sb.Terminate(rc.Background.Context(), 0) }}, nil
	}
	held, err := sb.Processes(ctx)
	if err != nil { // it has ended, or the kernel holds it after a kill: its processes are reported as lost
		publisher.LogSession(rc.Publisher.Log.Warn().Err(err).Str("sandbox", sb.ID()), t.ID, t.Session.ID).Msg("sandbox does not answer")
	}
	for _, h := range held {
		step, err := rc.Runs.Resume(ctx, t, sb, h)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	if t.Session.Terminating {
		steps = append(steps, func() { rc.stop(ctx, t) })
	}
	publisher.LogSession(rc.Publisher.Log.Info().Str("sandbox", sb.ID()), t.ID, t.Session.ID).Int("processes", t.Busy()).Msg("sandbox_reattached")
	return steps, nil
}

// Holds reports whether a sandbox that Reattach found still runs.
func (rc *Recovery) Holds() bool {
	return slices.ContainsFunc(rc.found, func(sb sandbox.Attached) bool {
		select {
		case <-sb.Done():
			return false
		default:
			return true
		}
	})
}

// Detach leaves the sandboxes for the Reattach of this worker's next incarnation. Here they count as ended.
func (rc *Recovery) Detach() {
	var all sync.WaitGroup
	for name, provider := range rc.Providers {
		if reattacher, ok := provider.(sandbox.Reattacher); ok {
			all.Go(func() {
				if err := reattacher.Detach(); err != nil {
					rc.Publisher.Log.Warn().Err(err).Str("provider", name).Msg("leave sandboxes")
				}
			})
		}
	}
	all.Wait()
}

// Recover takes up what this worker's earlier incarnations in this program had not started, and reports as lost what else they left
// unfinished and Reattach did not find. Errors: unavailable.
func (rc *Recovery) Recover(ctx context.Context) error {
	info, err := rc.Roster.Worker(ctx, rc.Publisher.Worker)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil // it is its first
	}
	if err != nil {
		return err
	}
	return rc.reportLost(ctx, info)
}

// Reap recovers workers whose lease has lapsed. Several workers may reap the same one: the records decide which was first.
func (rc *Recovery) Reap(ctx context.Context) {
	log := &rc.Publisher.Log
	workers, err := rc.Roster.Workers(ctx)
	if err != nil {
		log.Debug().Err(err).Msg("list workers")
		return
	}
	for _, info := range workers {
		if info.ID == rc.Publisher.Worker {
			continue
		}
		alive, err := rc.Roster.LeaseAlive(ctx, info.ID)
		if err != nil || alive {
			continue
		}
		if err := rc.reportLost(ctx, info); err != nil {
			log.Warn().Err(err).Str("dead_worker", info.ID).Msg("recover")
			continue
		}
		if rc.Lost != nil {
			if err := rc.Lost(ctx, info.ID); err != nil {
				log.Warn().Err(err).Str("dead_worker", info.ID).Msg("recover services")
				continue
			}
		}
		if err := rc.Roster.Unregister(ctx, info); err != nil {
			log.Warn().Err(err).Str("dead_worker", info.ID).Msg("unregister")
		}
	}
}

// reportLost records what a worker left unfinished, and what does not run here, as lost.
func (rc *Recovery) reportLost(ctx context.Context, info schemas.WorkerInfo) error {
	unfinished, err := rc.History.Unfinished(ctx, info.ID, info.LowSeq)
	if err != nil {
		return err
	}
	slices.SortFunc(unfinished, func(a, b *schemas.Event) int { return cmp.Compare(a.Seq, b.Seq) }) // messages have their turn in it
	for _, last := range unfinished {
		if rc.Runs.Running(last.Tenant, last.Process) {
			continue
		}
		if then, err := rc.Runs.TakeUp(ctx, last); then != nil {
			rc.steps = append(rc.steps, then)
			continue
		} else if err != nil && !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if elsewhere, err := rc.mayRun(ctx, last); err != nil {
			return err
		} else if elsewhere {
			continue
		}
		if _, err := rc.Runs.RecordLost(ctx, last); err != nil && !errors.Is(err, schemas.ErrConflict) {
			return err
		}
	}
	return nil
}

// mayRun reports whether a process may run in a sandbox that a temporary worker has not adopted, or whose provider it does not have.
func (rc *Recovery) mayRun(ctx context.Context, last *schemas.Event) (bool, error) {
	if !rc.Temporary || rc.left[last.Thread] {
		return rc.Temporary, nil
	}
	provider, err := rc.Sessions.ProviderOf(ctx, last.Tenant, last.Thread)
	return provider != "" && !rc.attached[provider], err
}
