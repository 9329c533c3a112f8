package processor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/processor/internal/conversation"
	"github.com/sluice-dev/sluice/processor/internal/files"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/recovery"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/processor/internal/service"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/schemas"
)

// Worker owns threads and runs their commands. It implements events.Handler without importing it.
type Worker struct {
	cfg        Config
	publisher  *publisher.Publisher
	background *work.Background
	sessions   *session.Sessions
	places     *session.Places
	runs       *run.Runs
	acceptor   *run.Acceptor
	canceler   *run.Canceler
	recovery   *recovery.Recovery
	services   *service.Services
	files      *files.Files
	disk       *disk
	stopping   atomic.Bool // the shutdown has begun
}

// New makes a worker that does nothing yet. Errors: invalid_argument.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, background: work.NewBackground()}
	w.disk = &disk{worker: cfg.Worker, dir: cfg.Workspaces, minFree: cfg.Limits.MinFreeBytes, log: cfg.Log}
	w.publisher = &publisher.Publisher{Worker: cfg.Worker, LeaseHeld: cfg.LeaseHeld, Events: cfg.Records, Send: cfg.Answer, Log: cfg.Log}
	w.places = session.NewPlaces(cfg.Quotas, cfg.Worker, cfg.Freed)
	w.sessions = session.New(session.Config{
		Publisher: w.publisher, Background: w.background, Timeouts: cfg.timeouts,
		Store: cfg.Sessions, Subscriptions: cfg.Subscriptions, LeaseAlive: cfg.Roster.LeaseAlive,
		Template: cfg.template, Hooks: cfg.Hooks, Owed: cfg.Owed, Kept: cfg.Kept, KeepWorkspaces: cfg.KeepWorkspaces, Secrets: cfg.Secrets,
		Allow: cfg.Allow, Temporary: cfg.Temporary, Providers: cfg.Providers, DefaultProvider: cfg.DefaultProvider, ImageProvider: cfg.ImageProvider, Image: cfg.Image,
		Limits: cfg.Limits, Network: cfg.Network, Workspaces: cfg.Workspaces, IdleTimeout: cfg.IdleTimeout, StopGrace: cfg.StopGrace,
		Places: w.places,
	})
	conversations := conversation.New(w.sessions, w.publisher, w.background, cfg.Locate)
	runs := run.Config{
		Publisher: w.publisher, Background: w.background, Timeouts: cfg.timeouts, Sessions: w.sessions,
		NewTurn: conversations.NewMessage,
		Records: cfg.Records, History: cfg.History, OpenOutput: cfg.OpenOutput, Replay: cfg.Replay, FollowLog: cfg.FollowLog, Handover: cfg.Handover, Policy: cfg.Policy,
		MaxProcesses: cfg.MaxProcesses, MaxTenantProcesses: cfg.MaxTenantProcesses, MaxThreadProcesses: cfg.MaxThreadProcesses, MaxAttempts: cfg.MaxAttempts, Freed: cfg.Freed, Temporary: cfg.Temporary, Disk: w.disk.admit,
	}
	w.runs, w.canceler = run.New(runs), run.NewCanceler(runs)
	w.acceptor = run.NewAcceptor(w.runs)
	w.services = service.New(service.Config{
		Publisher: w.publisher, Background: w.background, Sessions: w.sessions, Launcher: run.NewLauncher(w.acceptor),
		Store: cfg.Services, Timeout: cfg.timeouts.Accept, Temporary: cfg.Temporary,
	})
	w.files = files.New(files.Config{Publisher: w.publisher, Background: w.background, Timeouts: cfg.timeouts, Sessions: w.sessions})
	w.recovery = &recovery.Recovery{
		Lost:      w.services.ReportLost,
		Publisher: w.publisher, Background: w.background, Sessions: w.sessions, Runs: w.runs,
		Roster: cfg.Roster, History: cfg.History, Providers: cfg.Providers, Temporary: cfg.Temporary,
	}
	return w, nil
}

// Recover goes on with what an earlier incarnation of this worker left running, records the end of what does not run any more,
// and registers this incarnation. It comes before the first command. Errors: unavailable; the worker must not run then, and its
// providers should leave their sandboxes to the next one.
func (w *Worker) Recover(ctx context.Context) error {
	if err := w.recovery.Reattach(ctx); err != nil {
		return err
	}
	if err := w.recovery.Recover(ctx); err != nil {
		return err
	}
	last, err := w.cfg.History.LastSeq(ctx)
	if err != nil {
		return err
	}
	w.runs.SawSeq(last)
	if err := w.Register(ctx); err != nil {
		return err
	}
	w.cfg.Handover.Clear()
	w.recovery.Start()
	return w.services.Resume(ctx)
}

// Register stores where a recovery of this worker has to start, and how full the worker is. It is called at each renewal of the lease. Errors: unavailable.
func (w *Worker) Register(ctx context.Context) error {
	if err := w.publisher.CheckLease(); err != nil {
		return err // the entry is a later incarnation's
	}
	names := make([]string, 0, len(w.cfg.Providers))
	for name := range w.cfg.Providers {
		names = append(names, name)
	}
	processes, first := w.runs.Unfinished()
	ofTenant, ofThread := w.runs.Shares()
	sessions, sandboxes := w.places.Used()
	sessionsOfTenant, sandboxesOfTenant := w.cfg.Quotas.OfTenant()
	workspace, disk := w.cfg.Limits.WorkspaceDefaults(), w.disk.usage()
	return w.cfg.Roster.Register(ctx, schemas.WorkerInfo{
		ID: w.cfg.Worker, Incarnation: w.cfg.Incarnation, LowSeq: first, Providers: names, Processes: processes, Sessions: sessions, Sandboxes: sandboxes, Disk: &disk,
		Limits: &schemas.WorkerLimits{
			Processes: w.cfg.MaxProcesses, TenantProcesses: ofTenant, ThreadProcesses: ofThread,
			Sessions: w.cfg.Quotas.MaxSessions, TenantSessions: sessionsOfTenant,
			Sandboxes: w.cfg.Quotas.MaxSandboxes, TenantSandboxes: sandboxesOfTenant, TenantMemoryBytes: w.cfg.Quotas.TenantMemoryBytes, TenantCPUs: w.cfg.Quotas.TenantCPUs,
			WorkspaceBytes: workspace.WorkspaceBytes, WorkspaceFiles: workspace.WorkspaceFiles, FileBytes: workspace.FileBytes,
		},
	})
}

// Run sweeps until ctx ends, then shuts the worker down: it accepts nothing more, ends and records what runs, ends the sandboxes,
// and gives its threads up. A temporary worker leaves what it found running to the next one. It returns when nothing is left to do.
func (w *Worker) Run(ctx context.Context) error {
	sweep := time.NewTicker(w.cfg.SweepEvery)
	defer sweep.Stop()
	orphans := time.NewTicker(w.cfg.OrphansEvery)
	defer orphans.Stop()
	room := time.NewTicker(diskEvery)
	defer room.Stop()
	for {
		select {
		case <-ctx.Done():
			w.shutdown()
			return nil
		case <-room.C:
			if w.disk.regained() {
				w.cfg.Freed()
			}
		case <-sweep.C:
			w.sessions.Sweep(ctx)
			if !w.cfg.Temporary {
				w.recovery.Reap(ctx)
			}
		case <-orphans.C:
			w.sessions.SweepOrphans(ctx)
			w.sessions.Workspaces().Sweep()
		}
	}
}

// Fence ends everything at once because the lease is lost: another worker may own what runs here, so nothing more is published.
// Run's shutdown does the rest.
func (w *Worker) Fence() {
	w.publisher.Fence()
	w.leave()
	w.runs.Kill(0)
}

// Abandon leaves what runs to the next incarnation of this worker: this one has lost its lease, and perhaps its connection. Nothing
// more is published, and the sandboxes stay with their processes. Run's shutdown does the rest. During a shutdown they end instead.
func (w *Worker) Abandon() {
	w.publisher.Fence()
	w.leave()
	if !w.stopping.Load() {
		w.sessions.StopCreating()
		w.recovery.Detach()
	}
}

// leave stops new work. Commands come first: one that is declined here runs on another worker, but one whose claim fails may be refused.
func (w *Worker) leave() {
	w.services.Leave()
	w.runs.Leave()
	w.files.Stop()
	w.sessions.Leave()
}

// shutdown ends what runs, in steps that each have a bound: neither a sandbox that does not answer nor a stream that takes no
// record may keep the worker from ending.
func (w *Worker) shutdown() {
	w.stopping.Store(true)
	grace, timeouts := w.cfg.StopGrace, &w.cfg.timeouts
	if w.publisher.Fenced() {
		grace = 0
		w.background.Cancel() // what waits for NATS could publish nothing more
	}
	w.leave()
	w.runs.Kill(grace)
	ended := w.runs.Ended()
	work.Within(ended, grace+timeouts.Kill)
	w.sessions.HandOver()
	work.Within(ended, timeouts.Kill)
	if w.cfg.Temporary && w.recovery.Holds() {
		w.publisher.Fence() // what follows is the next worker's to record
		w.recovery.Detach()
	}
	w.background.Wait(timeouts.Kill)
	w.background.Cancel()
	<-ended
	<-w.runs.Ended() // what was detached
	w.background.Close(timeouts.Kill)
	// A worker whose processes all have a recorded end needs no recovery.
	if w.publisher.Fenced() || !w.runs.AllRecorded() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeouts.Kill)
	defer cancel()
	if err := w.cfg.Roster.Unregister(ctx, schemas.WorkerInfo{ID: w.cfg.Worker, Incarnation: w.cfg.Incarnation}); err != nil {
		w.publisher.Log.Warn().Err(err).Msg("unregister")
	}
}

// HandleCommand accepts a command and lets it run, or answers why not. It returns once the command is on record.
func (w *Worker) HandleCommand(ctx context.Context, d schemas.Delivery) schemas.Verdict {
	return w.acceptor.HandleCommand(ctx, &d)
}

// HandleCancel keeps a command from being accepted. runs says that it was accepted before, and its process has not ended. With an error,
// the command may still be accepted.
func (w *Worker) HandleCancel(ctx context.Context, c schemas.Cancel) (runs bool, err error) {
	return w.canceler.Cancel(ctx, c)
}

// Room returns how many more commands the worker has room for now.
func (w *Worker) Room() int {
	// Nothing waits for the disk of a temporary worker: its command is refused, with the reason.
	if !w.cfg.Temporary && w.disk.admit() != nil {
		return 0
	}
	return w.runs.Room()
}

// Disk returns how much room the file system of the workspaces has.
func (w *Worker) Disk() schemas.WorkerDisk { return w.disk.usage() }

// RoomFor returns how many more commands of a thread the worker has room for now, of its tenant for an empty thread: those of a thread
// with a sandbox need no other one.
func (w *Worker) RoomFor(tenant, thread string) int {
	room := w.runs.RoomFor(tenant, thread)
	if thread != "" {
		room = min(room, w.places.Room(tenant, thread))
	}
	return room
}

// HandleControl signals a running process, kills it or writes to its standard input, and calls done, at most once, with the outcome.
func (w *Worker) HandleControl(_ context.Context, ctl schemas.Control, done func(error)) {
	w.runs.Control(ctl, done)
}

// HandleFile carries out a message about files and calls reply, at most once, with the answer, now or later.
func (w *Worker) HandleFile(m schemas.FileMessage, reply func(schemas.FileAnswer)) {
	w.files.Handle(m, reply)
}

// HandleSession carries out a request about a session and calls reply, at most once, with the outcome, now or later.
func (w *Worker) HandleSession(ctx context.Context, req schemas.SessionControl, reply func(schemas.SessionReply)) {
	w.sessions.Control(ctx, req, reply)
}

// HandleService carries out a request about a service and calls reply, at most once, with the outcome, now or later.
func (w *Worker) HandleService(_ context.Context, req schemas.ServiceControl, reply func(schemas.ServiceReply)) {
	w.services.Control(req, reply)
}

// HandlePlace claims a thread that no worker owns, and makes its session when it has none. It declines without room for a process of the
// thread, unless the request says that none is needed.
func (w *Worker) HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply {
	room := func() bool { return req.WithoutRoom || w.Room() > 0 && w.runs.RoomFor(tenant, req.Thread) > 0 }
	return w.sessions.Place(ctx, tenant, req, room)
}

// Amend changes the session of a thread that this worker owns: its counts, its version. Errors: session_expired when the thread has
// another session or none here, lost, unavailable.
func (w *Worker) Amend(ctx context.Context, tenant, thread, session string, edit func(*schemas.Session)) error {
	return w.sessions.Amend(ctx, tenant, thread, session, edit)
}

// HandleWorkspace removes a workspace that no session uses from this worker's disk. Errors: not_found; conflict when the thread has a
// session here, or a push of the workspace is owed; lost, unavailable.
func (w *Worker) HandleWorkspace(ctx context.Context, tenant string, req schemas.WorkspaceRemoval) error {
	return w.sessions.Workspaces().Remove(ctx, tenant, req)
}

// HandleProcesses lists processes that this worker runs.
func (w *Worker) HandleProcesses(ctx context.Context, tenant string, req schemas.ProcessesRequest) schemas.ProcessesReply {
	if err := w.publisher.CheckLease(); err != nil {
		return schemas.ProcessesReply{Error: schemas.AsError(err)}
	}
	return w.runs.List(ctx, tenant, req)
}

// HandleCleaned records that ended processes of a thread are cleaned up: lists leave them out. Errors: lost, unavailable.
func (w *Worker) HandleCleaned(ctx context.Context, tenant, thread string, done schemas.ProcessesCleaned) error {
	if err := w.publisher.CheckLease(); err != nil {
		return err
	}
	return w.cfg.Records.Publish(ctx, w.publisher.Event(schemas.TypeProcessesCleaned, publisher.About{Tenant: tenant, Thread: thread}, done))
}

// CheckLease returns nil while the worker's lease has not lapsed. Errors: lost.
func (w *Worker) CheckLease() error { return w.publisher.CheckLease() }

// Owns returns nil while this worker owns a thread under an epoch, by KV and by its lease's own clock. Call it right before a write
// for the thread that no compare-and-swap protects. Errors: lost, unavailable.
func (w *Worker) Owns(ctx context.Context, tenant, thread string, epoch uint64) error {
	return w.sessions.Owns(ctx, tenant, thread, epoch)
}
