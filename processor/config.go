package processor

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Records are the write-once records of processes.
type Records interface {
	// Append writes the next record of a process after the one at this sequence, 0 for the first, and returns its own. Errors:
	// conflict when somebody was first.
	Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error)
	// AppendAsync is Append without the wait.
	AppendAsync(ev *schemas.Event, after uint64) (wait func(context.Context) (uint64, error), err error)
	// Last reads the newest record. Errors: not_found.
	Last(ctx context.Context, tenant, thread, process string) (*schemas.Event, error)
	// Publish writes an event that is no process record.
	Publish(ctx context.Context, ev *schemas.Event) error
}

// Sessions are the threads' claims, changed by compare-and-swap.
type Sessions interface {
	// Session reads a session and the revision to change it by. Errors: not_found.
	Session(ctx context.Context, tenant, thread string) (*schemas.Session, uint64, error)
	// SaveSession writes over a revision, 0 for a new one. Errors: conflict.
	SaveSession(ctx context.Context, s *schemas.Session, revision uint64) (uint64, error)
	// DeleteSession removes it if it is still at this revision. Errors: conflict.
	DeleteSession(ctx context.Context, s *schemas.Session, revision uint64) error
	// EachSession gives every session of every tenant to fn, with the revision to change it by.
	EachSession(ctx context.Context, fn func(s *schemas.Session, revision uint64) error) error
}

// Threads are the ways in that an owner opens.
type Subscriptions interface {
	// Own lets the commands of a thread in. Owning what is owned already changes nothing.
	Subscribe(ctx context.Context, tenant, thread string) error
	// Disown ends that.
	Unsubscribe(tenant, thread string)
}

// Roster knows the workers, and what dead ones left behind.
type Roster interface {
	// LeaseAlive says whether a worker's lease has not lapsed.
	LeaseAlive(ctx context.Context, worker string) (bool, error)
	// Workers lists all that registered, dead ones too; Register and Unregister change it.
	Workers(ctx context.Context) ([]schemas.WorkerInfo, error)
	Register(ctx context.Context, w schemas.WorkerInfo) error
	Unregister(ctx context.Context, worker string) error
}

// History reads what was stored before.
type History interface {
	// Unfinished finds the processes a worker accepted from a sequence on and left without an end.
	Unfinished(ctx context.Context, worker string, from uint64) ([]*schemas.Event, error)
	// Accepted is the first record of a process, or of its last run.
	Accepted(ctx context.Context, tenant, thread, process string) (*schemas.Event, error)
	// Stored says what LOG has of a process.
	Stored(ctx context.Context, tenant, thread, process string) (rng *schemas.LogRange, stdout, stderr int64, err error)
	// LastSeq is the sequence of the newest event.
	LastSeq(ctx context.Context) (uint64, error)
}

// Output stores a process's output, in order.
type Output interface {
	// Write takes a piece, and blocks while too much is not stored yet. Its error is final.
	Write(stream schemas.Stream, offset int64, p []byte) error
	// Close waits for the last piece to be stored and says where the output stands.
	Close() (*schemas.LogRange, error)
}

// Config sets up a worker. The fields without a default are required.
type Config struct {
	// Worker is the worker's id, the same after a restart. One worker may use it at a time.
	Worker string
	// Incarnation is new at each start.
	Incarnation string

	Records       Records
	Sessions      Sessions
	Subscriptions Subscriptions
	Roster        Roster
	History       History
	// OpenOutput begins to store a process's output, or goes on after what is stored of it; stored is told how far it is safe.
	OpenOutput func(p schemas.ProcessRef, after *schemas.LogRange, stored func(schemas.Stream, int64)) Output
	// Replay reads what is stored of a process's output, each stream in order, and says where it stands.
	Replay func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (*schemas.LogRange, error)
	// Answer sends an event to a caller's inbox.
	Answer func(inbox string, ev *schemas.Event) error
	// MaxRecord is the most bytes a record may have.
	MaxRecord int64
	// Holds says, by this machine's own clock, whether the worker's lease has not lapsed. Once false it stays so. Default: it
	// holds until Fence.
	LeaseHeld func() bool

	// Templates, Policy and Hooks are what sessions follow. Default: one template made of this configuration; everything is
	// allowed; nothing runs.
	Templates Templates
	Policy    Policy
	Hooks     Hooks
	// Secrets are the values of a template's secrets, read when a sandbox is made. Default: none.
	Secrets func(t *schemas.Template) (map[string]string, error)

	// Providers make the sandboxes, by name. Only those the operator allows are here.
	Providers map[string]sandbox.Provider
	// DefaultProvider is used where a command names none. Default: none, and such a command is refused.
	DefaultProvider string
	// ImageProvider is the provider that makes sandboxes from images, and serves commands that name an image and no provider.
	// Default: none does.
	ImageProvider string
	// Image is what ImageProvider uses where a command names none. Default: such a command is refused by the provider.
	Image string
	// Limits bound each sandbox. Zero fields have the provider's defaults.
	Limits sandbox.Limits
	// Workspaces is the folder under which each thread has its workspace.
	Workspaces string

	// MaxProcesses is how many accepted processes may not have ended yet. Default 256.
	MaxProcesses int
	// IdleTimeout ends a session that has run nothing for that long, where its template does not say. Default 30 min.
	IdleTimeout time.Duration
	// StopGrace is the time between SIGTERM and SIGKILL when the worker shuts down, and where a session that ends has a
	// template that does not say. Default 10 s.
	StopGrace time.Duration
	// MaxAttempts is how often a durable command is delivered before it is given up as a dead letter. A full worker, and the
	// owner of a thread whose lease has not lapsed yet, give it back too: the bound must outlast them. Default 2,400, which
	// is 20 minutes at two deliveries a second.
	MaxAttempts int
	// SweepEvery is how often idle sessions and dead workers are looked for. Default 5 s.
	SweepEvery time.Duration
	// OrphansEvery is how often the sessions that nobody runs any more are looked through for expired ones. Default 1 min.
	OrphansEvery time.Duration
	// Log gets one line for each command's outcome. Default: nothing is logged.
	Log zerolog.Logger

	patience patience
}

// patience is how long a worker waits for what may never come. Tests shorten it.
type patience struct {
	accept time.Duration // to decide on a command and to record it
	start  time.Duration // to make a sandbox where the template does not say, and to start a process in it
	pull   time.Duration // the same, where an image may have to come over the network first
	hooks  time.Duration // for the hooks at a session's end
	gone   time.Duration // for a sandbox that failed a start to say that it has ended
	answer time.Duration // with a record that cannot be written, until the caller is told anyway
	record time.Duration // … until the worker gives up
	kill   time.Duration // for killed processes to end at shutdown, over the grace: their sandboxes end next
	end    time.Duration // for the sandboxes to end at shutdown; a provider takes 10 s until it uses force
}

func (c Config) withDefaults() Config {
	if c.MaxProcesses == 0 {
		c.MaxProcesses = 256
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
	if c.LeaseHeld == nil {
		c.LeaseHeld = func() bool { return true }
	}
	c.patience = c.patience.withDefaults()
	return c
}

func (p patience) withDefaults() patience {
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{
		{&p.accept, 10 * time.Second},
		{&p.start, 60 * time.Second},
		{&p.pull, 15 * time.Minute},
		{&p.hooks, 6 * time.Minute}, // a push of a large workspace may take its 5 min
		{&p.gone, 2 * time.Second},
		{&p.answer, 10 * time.Second},
		{&p.record, 10 * time.Minute},
		{&p.kill, 5 * time.Second},
		{&p.end, 20 * time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	return p
}

// Validate checks the configuration. Errors: invalid_argument.
func (c Config) Validate() error {
	if err := schemas.CheckID("worker", c.Worker); err != nil {
		return err
	}
	switch {
	case c.Incarnation == "":
		return schemas.Errorf(schemas.CodeInvalidArgument, "incarnation: missing")
	case c.Records == nil, c.Sessions == nil, c.Subscriptions == nil, c.Roster == nil, c.History == nil, c.OpenOutput == nil, c.Replay == nil, c.Answer == nil:
		return schemas.Errorf(schemas.CodeInvalidArgument, "a part the worker needs is missing")
	case c.MaxRecord < 64<<10:
		return schemas.Errorf(schemas.CodeInvalidArgument, "max_record: %d bytes are too few for a result", c.MaxRecord)
	case !filepath.IsAbs(c.Workspaces):
		return schemas.Errorf(schemas.CodeInvalidArgument, "workspaces: %q is not an absolute folder", c.Workspaces)
	}
	if c.DefaultProvider != "" && c.Providers[c.DefaultProvider] == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "default_provider: there is no provider %q here", c.DefaultProvider)
	}
	if c.ImageProvider != "" && c.Providers[c.ImageProvider] == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "image_provider: there is no provider %q here", c.ImageProvider)
	}
	return nil
}
