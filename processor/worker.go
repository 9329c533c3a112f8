package processor

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/schemas"
)

// Worker owns threads and runs their commands. It implements events.Handler without knowing it.
type Worker struct {
	cfg Config

	mu      sync.Mutex
	threads map[string]*thread // by tenant.thread
	runs    map[string]*run    // by tenant.process: accepted and not ended
	seq     uint64             // the newest EVT sequence this worker was acked
	owed    uint64             // no process whose end this worker could not record is older; the largest number for none
	leaving bool

	fenced atomic.Bool // the lease is lost: nothing more is published

	claims   keyLocks // by tenant.thread: one claim or expiry at a time
	commands keyLocks // by tenant.process: one decision at a time
	work     sync.WaitGroup
	errands  errands
	calm     chan struct{} // bounds what falls due at once

	bg           context.Context // of what outlives the call that began it; ends when there is no more to wait for
	cancel       context.CancelFunc
	creating     context.Context // of sandboxes being made
	stopCreating context.CancelFunc
}

// New makes a worker that does nothing yet. Errors: invalid_argument.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, threads: make(map[string]*thread), runs: make(map[string]*run), owed: math.MaxUint64, calm: make(chan struct{}, calmly)}
	// Runs outlive the call that accepted them, and the shutdown's first signal; cancel ends them when Run returns.
	w.bg, w.cancel = context.WithCancel(context.Background())
	w.creating, w.stopCreating = context.WithCancel(w.bg)
	return w, nil
}

// Recover goes on with what an earlier incarnation of this worker left running, ends the record of what does not run any more,
// and registers this one. It comes before the first command. Errors: unavailable; the worker must not be run then, and its
// providers should leave their sandboxes to the next.
func (w *Worker) Recover(ctx context.Context) error {
	found, err := w.reattach(ctx)
	if err != nil {
		return err
	}
	workers, err := w.cfg.Roster.Workers(ctx)
	if err != nil {
		return err
	}
	for _, info := range workers {
		if info.ID == w.cfg.Worker {
			if err := w.recoverWorker(ctx, info); err != nil {
				return err
			}
		}
	}
	last, err := w.cfg.History.LastSeq(ctx)
	if err != nil {
		return err
	}
	w.sawSeq(last)
	if err := w.Register(ctx); err != nil {
		return err
	}
	found.begin()
	return nil
}

// Register writes how far this worker has come, for whoever has to recover it. It is called at each renewal of the lease.
// Errors: unavailable.
func (w *Worker) Register(ctx context.Context) error {
	names := make([]string, 0, len(w.cfg.Providers))
	for name := range w.cfg.Providers {
		names = append(names, name)
	}
	return w.cfg.Roster.Register(ctx, schemas.WorkerInfo{ID: w.cfg.Worker, Incarnation: w.cfg.Incarnation, LowSeq: w.lowSeq(), Providers: names})
}

// Run sweeps until ctx ends, then shuts the worker down: nothing more is accepted, what runs gets SIGTERM, the grace and
// SIGKILL, and is recorded; sandboxes end, threads are given up. It returns when nothing is left.
func (w *Worker) Run(ctx context.Context) error {
	group, sweepCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		tick := time.NewTicker(w.cfg.SweepEvery)
		defer tick.Stop()
		orphans := time.NewTicker(w.cfg.OrphansEvery)
		defer orphans.Stop()
		for {
			select {
			case <-sweepCtx.Done():
				return nil
			case <-tick.C:
				w.sweep(sweepCtx)
				w.reapDead(sweepCtx)
			case <-orphans.C:
				w.reapOrphans(sweepCtx)
			}
		}
	})
	err := group.Wait()
	w.shutdown()
	return err
}

// Fence ends everything at once because the lease is lost: another worker may have taken over what runs here, so that
// nothing more is published. Run's shutdown does the rest.
func (w *Worker) Fence() {
	w.fenced.Store(true)
	w.mu.Lock()
	w.leaving = true
	runs := w.runsLocked()
	w.mu.Unlock()
	for _, r := range runs {
		r.kill(0)
	}
}

func (w *Worker) runsLocked() []*run {
	out := make([]*run, 0, len(w.runs))
	for _, r := range w.runs {
		out = append(out, r)
	}
	return out
}

// shutdown ends what runs, in steps that each have a bound: a sandbox that no longer answers, or a stream that takes no
// record, must not keep a worker that was told to go.
func (w *Worker) shutdown() {
	w.mu.Lock()
	w.leaving = true
	runs := w.runsLocked()
	threads := make([]*thread, 0, len(w.threads))
	for _, t := range w.threads {
		threads = append(threads, t)
	}
	w.mu.Unlock()
	grace := w.cfg.StopGrace
	if w.isFenced() {
		grace = 0
	}
	for _, r := range runs {
		r.kill(grace)
	}
	settled := make(chan struct{})
	go func() {
		w.work.Wait()
		close(settled)
	}()
	within(settled, grace+w.cfg.patience.kill)
	w.stopCreating()
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.patience.end)
	defer cancel()
	var group errgroup.Group
	for _, t := range threads {
		group.Go(func() error {
			w.handOver(ctx, t)
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	within(settled, w.cfg.patience.kill)
	w.errands.wait(w.cfg.patience.kill)
	w.cancel()
	<-settled
	w.errands.close(w.cfg.patience.kill)
	w.mu.Lock()
	clean := w.owed == math.MaxUint64
	w.mu.Unlock()
	if !w.isFenced() && clean {
		ctx, cancel := context.WithTimeout(context.Background(), w.cfg.patience.kill)
		defer cancel()
		if err := w.cfg.Roster.Unregister(ctx, w.cfg.Worker); err != nil {
			w.cfg.Log.Warn().Err(err).Msg("unregister")
		}
	}
}

// handOver gives a thread up at shutdown: whoever takes it over finds its session, and its workspace as the hooks leave it.
func (w *Worker) handOver(ctx context.Context, t *thread) {
	t.mu.Lock()
	lives := t.making != nil && t.ending == nil
	t.mu.Unlock()
	if lives && !w.isFenced() {
		_ = w.terminateHooks(ctx, t, w.cfg.patience.end) // its error is logged: a worker that was told to go goes
	}
	w.endSandbox(ctx, t, 0)
	w.cfg.Subscriptions.Unsubscribe(t.tenant, t.thread)
	t.settleNotes(ctx)
}

func within(done <-chan struct{}, bound time.Duration) {
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// sawSeq keeps the newest sequence of EVT that this worker knows of.
func (w *Worker) sawSeq(seq uint64) {
	w.mu.Lock()
	w.seq = max(w.seq, seq)
	w.mu.Unlock()
}

// lowSeq is a sequence before which this worker left nothing unfinished.
func (w *Worker) lowSeq() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	low := min(w.seq+1, w.owed)
	for _, r := range w.runs {
		low = min(low, r.low)
	}
	return low
}

// recoverWorker records what a dead worker left unfinished as lost.
func (w *Worker) recoverWorker(ctx context.Context, info schemas.WorkerInfo) error {
	open, err := w.cfg.History.Unfinished(ctx, info.ID, info.LowSeq)
	if err != nil {
		return err
	}
	for _, last := range open {
		if w.find(last.Tenant, last.Process) != nil {
			continue // it goes on here
		}
		if _, err := w.lose(ctx, last); err != nil && !errors.Is(err, schemas.ErrConflict) {
			return err
		}
	}
	return nil
}

// reapDead looks for workers whose lease has lapsed. Several may reap the same one: the records decide who was first.
func (w *Worker) reapDead(ctx context.Context) {
	workers, err := w.cfg.Roster.Workers(ctx)
	if err != nil {
		w.cfg.Log.Debug().Err(err).Msg("list workers")
		return
	}
	for _, info := range workers {
		if info.ID == w.cfg.Worker {
			continue
		}
		alive, err := w.cfg.Roster.LeaseAlive(ctx, info.ID)
		if err != nil || alive {
			continue
		}
		if err := w.recoverWorker(ctx, info); err != nil {
			w.cfg.Log.Warn().Err(err).Str("dead_worker", info.ID).Msg("recover")
			continue
		}
		if err := w.cfg.Roster.Unregister(ctx, info.ID); err != nil {
			w.cfg.Log.Warn().Err(err).Str("dead_worker", info.ID).Msg("unregister")
		}
	}
}
