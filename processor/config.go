package processor

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/processor/internal/conversation"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/recovery"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/processor/internal/service"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/processor/internal/work"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What a worker is built on. Each interface is declared by the part that calls it.
type (
	// Records are the write-once records of processes, and the events that are no records.
	Records interface {
		run.Records
		publisher.Events
	}
	// Sessions are the threads' claims, changed by compare-and-swap.
	Sessions = session.Store
	// Subscriptions receive the commands of the threads that the worker owns.
	Subscriptions = session.Subscriptions
	// Roster lists the workers, and what dead ones left behind. Register adds a worker, or replaces its entry.
	Roster interface {
		recovery.Roster
		Register(ctx context.Context, w schemas.WorkerInfo) error
	}
	// History reads what was stored before. LastSeq is the sequence of the newest event.
	History interface {
		run.History
		recovery.History
		LastSeq(ctx context.Context) (uint64, error)
	}
	// Output stores a process's output, in order.
	Output = run.Output
	// Opener starts to store a process's output.
	Opener = run.Opener
	// Templates return templates by name, the default one for an empty name. Errors: not_found.
	Templates interface {
		Template(name string) (*schemas.Template, error)
	}
	// Handover is what only one incarnation of a worker knows when it loses its lease: commands not started, and input not given.
	Handover = run.Handover
	// Policy decides which commands run.
	Policy = run.Policy
	// Hooks run a template's hooks at certain points of a session.
	Hooks = session.Hooks
	// Owed stores the pushes that workers owe.
	Owed = session.Owed
	// Lists are what the operator allows each tenant.
	Lists = session.Lists
	// Kept lists the workspaces that workers keep after a session.
	Kept = session.Kept
	// Quotas bound the sandboxes of a worker, and of a tenant in it.
	Quotas = session.Quotas
	// Services stores the services of threads.
	Services = service.Store
)

// Config sets up a worker. The fields without a default are required.
type Config struct {
	// Worker is the worker's id, the same after a restart. One worker may use it at a time.
	Worker string
	// Incarnation is new at each start.
	Incarnation string
	// Handover is the same for all incarnations of the worker in this program. Default: a new one, and what an earlier incarnation had not
	// started, or had not given its whole input, is lost.
	Handover *Handover

	Records       Records
	Sessions      Sessions
	Subscriptions Subscriptions
	Roster        Roster
	History       History
	// OpenOutput is for the output of a process that has none yet.
	OpenOutput func(p schemas.ProcessRef) Opener
	// Replay reads what is stored of a process's output, each stream in order, and returns the Opener for what follows.
	Replay func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (Opener, error)
	// FollowLog reads the output of a process until its end, for a process that has it as its input.
	FollowLog run.FollowLog
	// Answer sends an event to a caller's inbox.
	Answer func(inbox string, ev *schemas.Event) error
	// Locate returns the streams and subjects of a message's answer in the history and in the log, without sequences.
	Locate conversation.Locate
	// Temporary says that the worker serves one command of a user. No other worker serves its cell meanwhile: a command that it cannot
	// serve is rejected. It ends only what it started: what it found running is the next worker's. Default: a command waits for a worker
	// that serves it, and a shutdown ends everything.
	Temporary bool
	// Freed is called each time that the worker has room for one more process. Default: nothing is called.
	Freed func()
	// LeaseHeld reports, by this machine's own clock, whether the worker's lease has not lapsed. Once false it stays false.
	// Default: it is held until Fence.
	LeaseHeld func() bool

	// Templates, Policy and Hooks govern the sessions. Default: one template from this configuration; everything is allowed;
	// no hook runs.
	Templates Templates
	Policy    Policy
	Hooks     Hooks
	// Owed stores the pushes that dead workers owe for sessions that have expired. Default: they are not noted.
	Owed Owed
	// Kept lists the workspaces of ended sessions. Default: they are kept without an end, and no client sees them.
	Kept Kept
	// Services stores the services of threads. Required.
	Services Services
	// KeepWorkspaces is how long a workspace stays after its session; negative for without an end. Default 24 h.
	KeepWorkspaces time.Duration
	// Allow decides which templates, networks and images a tenant may use. Default: all that the worker has.
	Allow Lists
	// Secrets returns the values of a template's secrets, when a sandbox is created. Default: none.
	Secrets func(t *schemas.Template) (map[string]string, error)

	// Providers create the sandboxes, by name: those that the operator allows.
	Providers map[string]sandbox.Provider
	// DefaultProvider serves commands that name none. Default: none, and such a command is refused.
	DefaultProvider string
	// ImageProvider creates sandboxes from images, and serves commands that name an image and no provider. Default: none.
	ImageProvider string
	// Image is what ImageProvider uses for a command that names none. Default: the provider refuses such a command.
	Image string
	// Limits bound each sandbox. Zero fields have the provider's defaults.
	Limits sandbox.Limits
	// Network is that of templates that name none. Default none.
	Network schemas.Network
	// Workspaces is the folder under which each thread has its workspace.
	Workspaces string

	// MaxProcesses is how many accepted processes may be without an end at a time. Default 256.
	MaxProcesses int
	// MaxTenantProcesses and MaxThreadProcesses bound those of one tenant, and of one thread. Default: seven times the places that the
	// tenant leaves free, and that the thread leaves to its tenant; of 256 places 224 for a tenant that is alone, and 196 for its only
	// thread.
	MaxTenantProcesses, MaxThreadProcesses int
	// Quotas bound the sandboxes, and those of one tenant.
	Quotas Quotas
	// IdleTimeout ends a session that has run nothing for that long, unless its template sets one. Default 30 min.
	IdleTimeout time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL when the worker shuts down, and at the end of a session whose template
	// sets none. Default 10 s.
	StopGrace time.Duration
	// MaxAttempts is how often a durable command may fail to be accepted before it becomes a dead letter; to wait for room, or for a
	// worker that serves it, is no failure. A worker that finds the lease of the thread's owner not lapsed yet fails: the bound must
	// outlast that. Default 2,400, which is 20 minutes at two attempts a second.
	MaxAttempts int
	// SweepEvery is the interval between two searches for idle sessions and dead workers. Default 5 s.
	SweepEvery time.Duration
	// OrphansEvery is the interval between two searches for expired sessions that no worker runs. Default 1 min.
	OrphansEvery time.Duration
	// Log gets one line for each command's outcome. Default: nothing is logged.
	Log zerolog.Logger

	timeouts work.Timeouts
}

func (c Config) withDefaults() Config {
	if c.MaxProcesses == 0 {
		c.MaxProcesses = 256
	}
	if c.Quotas.MaxSessions == 0 {
		c.Quotas.MaxSessions = 16384
	}
	if c.Quotas.MaxSandboxes == 0 {
		c.Quotas.MaxSandboxes = 4096
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 30 * time.Minute
	}
	if c.StopGrace == 0 {
		c.StopGrace = 10 * time.Second
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 2400
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = 5 * time.Second
	}
	if c.OrphansEvery == 0 {
		c.OrphansEvery = time.Minute
	}
	if c.KeepWorkspaces == 0 {
		c.KeepWorkspaces = 24 * time.Hour
	}
	if c.Handover == nil {
		c.Handover = new(Handover)
	}
	if c.Freed == nil {
		c.Freed = func() {}
	}
	if c.LeaseHeld == nil {
		c.LeaseHeld = func() bool { return true }
	}
	c.timeouts = c.timeouts.WithDefaults()
	return c
}

// Validate checks the configuration. Errors: invalid_argument.
func (c Config) Validate() error {
	if err := schemas.CheckID("worker", c.Worker); err != nil {
		return err
	}
	switch {
	case c.Incarnation == "":
		return schemas.Errorf(schemas.CodeInvalidArgument, "incarnation: missing")
	case c.Records == nil, c.Sessions == nil, c.Subscriptions == nil, c.Roster == nil, c.History == nil, c.OpenOutput == nil, c.Replay == nil, c.FollowLog == nil, c.Answer == nil, c.Locate == nil:
		return schemas.Errorf(schemas.CodeInvalidArgument, "a required part of the worker's configuration is missing: set Records, Sessions, Subscriptions, Roster, History, OpenOutput, Replay, FollowLog, Answer and Locate")
	case !filepath.IsAbs(c.Workspaces):
		return schemas.Errorf(schemas.CodeInvalidArgument, "workspaces: %q is not an absolute path", c.Workspaces)
	}
	if c.DefaultProvider != "" && c.Providers[c.DefaultProvider] == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "default_provider: this worker has no provider %q", c.DefaultProvider)
	}
	if c.ImageProvider != "" && c.Providers[c.ImageProvider] == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "image_provider: this worker has no provider %q", c.ImageProvider)
	}
	return nil
}

// template returns a template by name, the default one for an empty name. Errors: not_found.
func (c Config) template(name string) (*schemas.Template, error) {
	if c.Templates != nil {
		return c.Templates.Template(name)
	}
	if name == "" || name == session.DefaultTemplate {
		return &schemas.Template{Name: name}, nil
	}
	return nil, schemas.Errorf(schemas.CodeNotFound, "worker %s has no template %q: it was started without templates", c.Worker, name)
}
