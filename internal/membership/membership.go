package membership

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// Membership is one incarnation of a worker in a cell.
type Membership struct {
	// Worker is the worker.
	Worker *processor.Worker

	incarnation *events.Incarnation
	cfg         processor.Config
}

var _ events.Runner = (*processor.Worker)(nil)

// Join acquires the lease of cfg.Worker and makes the worker. begin is [events.Lineage]'s; it may be nil. Join sets the fields of cfg
// that a connection provides; wrap may change them, such as to observe the records. wrap may be nil. Errors: those of
// [events.Worker.NewIncarnation] and [processor.New].
func Join(ctx context.Context, conn *events.Conn, cfg processor.Config, begin func(incarnation string) (earlier []string, err error), wrap func(*processor.Config)) (*Membership, error) {
	w := conn.Worker()
	incarnation, err := w.NewIncarnation(ctx, cfg.Worker, events.Lineage{Begin: begin, Waiting: func(holder string) {
		cfg.Log.Warn().Str("incarnation", holder).Msg("another incarnation of this worker id holds its lease: waiting for the lease to expire")
	}})
	if err != nil {
		return nil, err
	}
	refusals := cfg.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	incarnation.Listener.OnRefusedInbox = func(subject, inbox string, total uint64) {
		refusals.Warn().Str("subject", subject).Str("inbox", inbox).Uint64("total", total).Msg("a caller's inbox is not below _INBOX: it gets no answer")
	}
	cfg.Incarnation, cfg.LeaseHeld, cfg.Subscriptions = incarnation.ID, incarnation.Lease.Holds, incarnation.Listener.Threads
	cfg.Records, cfg.Sessions, cfg.Roster, cfg.History = w.Records, w.Sessions, w.Roster, history{w.Records, w.Logs}
	cfg.Owed, cfg.Kept, cfg.Services = w.Owed, kept{w.Workspaces, w.Owed}, w.Services
	cfg.Freed = incarnation.Listener.Freed
	cfg.Answer, cfg.Locate = w.Answer, w.Locate
	opener := func(p schemas.ProcessRef, after *events.StoredOutput) processor.Opener {
		return func(stored func(schemas.Stream, int64), dropped func(stream schemas.Stream, from, to int64)) processor.Output {
			return w.Logs.Resume(p, after, stored, dropped)
		}
	}
	cfg.OpenOutput = func(p schemas.ProcessRef) processor.Opener { return opener(p, nil) }
	cfg.Replay = func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (processor.Opener, error) {
		after, err := w.Logs.Replay(ctx, p, func(k schemas.Chunk) error {
			fn(k.Stream, k.Offset, k.Data)
			return nil
		})
		return opener(p, after), err
	}
	reader := conn.Caller()
	cfg.FollowLog = func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Chunk) error) (*schemas.Result, error) {
		last, err := reader.Last(ctx, p.Tenant, p.Thread, p.Process)
		if err != nil {
			return nil, err
		}
		return reader.FollowOutput(ctx, p, last, 0, fn)
	}
	if wrap != nil {
		wrap(&cfg)
	}
	worker, err := processor.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Membership{Worker: worker, incarnation: incarnation, cfg: cfg}, nil
}

// history is what a worker reads back: records and output.
type history struct {
	*events.Records
	*events.Logs
}

// kept is what workers keep after a session: workspaces, and pushes that they owe.
type kept struct {
	*events.WorkspaceStore
	*events.OwedStore
}

// Recover takes up what earlier incarnations left; see [processor.Worker.Recover]. Call it before Run. Errors: lost when the lease is lost
// meanwhile, those of the worker.
func (m *Membership) Recover(ctx context.Context) error {
	return m.incarnation.Recover(ctx, m.Worker.Recover)
}

// Run runs the worker until ctx ends or it loses its lease, and calls ready when it accepts commands. Errors: lost when the lease is
// lost, those of the worker.
func (m *Membership) Run(ctx context.Context, ready func()) error {
	return m.incarnation.Run(ctx, m.Worker, ready, func(err error) {
		if err != nil {
			m.cfg.Log.Debug().Err(err).Msg("register")
		}
	})
}

// Start recovers, runs the worker in the background, and returns when it accepts commands. stop ends it and returns Run's error.
// Errors: those of Recover and Run.
func (m *Membership) Start(ctx context.Context) (stop func() error, err error) {
	if err := m.Recover(ctx); err != nil {
		return nil, err
	}
	return Background(ctx, m.Run)
}

// Background calls run in the background, and returns when run has called ready. The context of run ends with stop, not with ctx. stop
// waits for run and returns its error. Errors: that of a run that ends before it has called ready.
func Background(ctx context.Context, run func(ctx context.Context, ready func()) error) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ready, ended := make(chan struct{}), make(chan struct{})
	var ran error
	go func() {
		defer close(ended)
		ran = run(ctx, func() { close(ready) })
	}()
	stop = func() error {
		cancel()
		<-ended
		return ran
	}
	select {
	case <-ready:
		return stop, nil
	case <-ended:
		return nil, stop()
	}
}
