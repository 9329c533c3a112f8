package processor

import (
	"context"
	"errors"
	"sync"
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
	leaving bool
	fenced  bool

	claims keyLocks
	work   sync.WaitGroup // one for each run
	bg     context.Context
	cancel context.CancelFunc
}

// New makes a worker that does nothing yet. Errors: invalid_argument.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, threads: make(map[string]*thread), runs: make(map[string]*run)}
	// Runs outlive the call that accepted them, and the shutdown's first signal; cancel ends them when Run returns.
	w.bg, w.cancel = context.WithCancel(context.Background())
	return w, nil
}

// Recover ends the record of what an earlier incarnation of this worker left unfinished, and registers this one. It comes
// before the first command. Errors: unavailable.
func (w *Worker) Recover(ctx context.Context) error {
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
	return w.Register(ctx)
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
		for {
			select {
			case <-sweepCtx.Done():
				return nil
			case <-tick.C:
				w.expireIdle(sweepCtx)
				w.reapDead(sweepCtx)
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
	w.mu.Lock()
	w.leaving, w.fenced = true, true
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

func (w *Worker) shutdown() {
	w.mu.Lock()
	w.leaving = true
	runs := w.runsLocked()
	fenced := w.fenced
	threads := make([]*thread, 0, len(w.threads))
	for _, t := range w.threads {
		threads = append(threads, t)
	}
	w.mu.Unlock()
	grace := w.cfg.StopGrace
	if fenced {
		grace = 0
	}
	for _, r := range runs {
		r.kill(grace)
	}
	w.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), grace+5*time.Second)
	defer cancel()
	var group errgroup.Group
	for _, t := range threads {
		group.Go(func() error {
			t.terminate(ctx, 0)
			w.cfg.Threads.Disown(t.tenant, t.thread)
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	w.cancel()
	if !fenced && len(w.pending()) == 0 {
		if err := w.cfg.Roster.Unregister(ctx, w.cfg.Worker); err != nil {
			w.cfg.Log.Warn().Err(err).Msg("unregister")
		}
	}
}

func (w *Worker) pending() []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runsLocked()
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
	low := w.seq + 1
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

// lose records that a process is lost: it was accepted, and whoever ran it is gone.
func (w *Worker) lose(ctx context.Context, last *schemas.Event) (*schemas.Event, error) {
	r := &schemas.Result{
		Process: last.Process, Thread: last.Thread, Reason: schemas.ReasonLost, ExitCode: schemas.ExitSluiceFailed,
		Timestamp: last.Time, Worker: last.Source,
		Error: schemas.Errorf(schemas.CodeLost, "worker %s went away while process %s ran: how it ended is not known, and it was not run again; send it with a new key, or with retry \"safe\"", last.Source, last.Process),
	}
	switch last.Type {
	case schemas.TypeProcessAccepted:
		var a schemas.Accepted
		if err := last.Decode(&a); err != nil {
			return nil, err
		}
		r.Command, r.Args, r.ArgsTruncated, r.Fingerprint, r.Epoch = a.Command, a.Args, a.ArgsTruncated, a.Fingerprint, a.Epoch
	default:
		var s schemas.Started
		if err := last.Decode(&s); err != nil {
			return nil, err
		}
		r.Command, r.Fingerprint, r.Epoch = s.Command, s.Fingerprint, s.Epoch
	}
	rng, stdout, stderr, err := w.cfg.History.Stored(ctx, last.Tenant, last.Thread, last.Process)
	if err != nil {
		return nil, err
	}
	r.Log, r.StdoutBytes, r.StderrBytes = rng, stdout, stderr
	r.StdoutTruncated, r.StderrTruncated = stdout > 0, stderr > 0
	ev := w.event(schemas.TypeProcessLost, last.Tenant, last.Thread, last.Session, last.Process, r)
	seq, err := w.cfg.Records.Append(ctx, ev, last.Seq)
	if err != nil {
		return nil, err
	}
	w.sawSeq(seq)
	w.cfg.Log.Warn().Str("command_id", last.Process).Str("thread", last.Thread).Str("worker", last.Source).Msg("process lost")
	return ev, nil
}
