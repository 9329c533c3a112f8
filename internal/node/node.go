package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/seal"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/allow"
	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/pool"
	"github.com/sluice-dev/sluice/schemas"
)

// Config configures a worker. Fields without a default are required.
type Config struct {
	// Worker is the id of the worker. It stays the same after a restart.
	Worker string
	// Begin records an incarnation of the worker; see [events.Lineage]. Default: the lease of a worker that was killed has to expire.
	Begin func(incarnation string) (earlier []string, err error)
	// Topology configures the streams of the cell. The zero value suits one machine.
	Topology events.Topology
	// Provider is the provider of commands that name none. When it is empty, such commands are rejected.
	Provider string
	// Allowed are the providers that commands may name.
	Allowed []string
	// Image is the image of provider docker for commands that name none. Default: such commands are rejected.
	Image string
	// Runtime is the engine's name of the OCI runtime of containers, such as runsc. Default: the engine's.
	Runtime string
	// Limits are the limits of each sandbox. Zero fields have the provider's defaults.
	Limits sandbox.Limits
	// Network is the network of sandboxes whose template names none. Default none.
	Network schemas.Network
	// Progress receives the progress of an image pull, and what a start waits for, as text, a few times a minute. Default: they are logged.
	Progress func(text string)
	// PoolSize is the number of sandboxes kept ready from the start: jails, for root, and containers of Image. Default 0: two jails from the
	// second one on, no containers.
	PoolSize int
	// RunFolder is the folder of sockets, Workspaces that of the threads' workspaces. Both are absolute paths.
	RunFolder, Workspaces string
	// Processes, Grace and Idle are processor.Config's MaxProcesses, StopGrace and IdleTimeout, with its defaults; TenantProcesses and
	// ThreadProcesses its MaxTenantProcesses and MaxThreadProcesses.
	Processes, TenantProcesses, ThreadProcesses int
	// Quotas are processor.Config's.
	Quotas      processor.Quotas
	Grace, Idle time.Duration
	// KeepWorkspaces is processor.Config's.
	KeepWorkspaces time.Duration
	// Temporary is processor.Config's.
	Temporary bool
	// SealKeys open the commands that are sealed in the queue, and seal new ones with the first key. Default: none.
	SealKeys *seal.Keys
	// PrivateHooks lets HTTP hooks reach loopback and private addresses. Default: only public addresses, and only by HTTPS.
	PrivateHooks bool
	// Hooks are further Go hooks by name. Default: only the built-in hooks.
	Hooks map[string]any
	// Templates is a folder of templates. Default: only the built-in templates.
	Templates string
	// AgentTemplates are the names of the built-in agent templates that are switched on, or [template.AllAgents]. Default: none.
	AgentTemplates []string
	// Allow is a file of what each tenant may use, read again at each Reload; see package allow. Default: none.
	Allow string
	// Documents are limits of the built-in template documents, in place of its own.
	Documents schemas.TemplateLimits
	// Reload has requests to read the folder of templates, and the file of Allow, again. Each is called with how many templates are in use then, or with why
	// they stay as they were. Default: none.
	Reload <-chan func(templates int, err error)
	// Getenv reads the environment variables that templates name as secrets. Default: none is set.
	Getenv func(string) string
	// Metrics is the registry of the worker's metrics. Default: a private one.
	Metrics *prometheus.Registry
	// Log gets one line per command. Default: nothing is logged.
	Log zerolog.Logger
}

// Node is a worker with its connection to NATS and its providers.
type Node struct {
	cfg       Config
	conn      *events.Conn
	templates *template.Store
	allow     *allow.Lists
	observer  *observe.Observer
	hooks     *hooks.Chains
	worker    atomic.Pointer[processor.Worker] // of the current incarnation
	pool      atomic.Pointer[pool.Pool]        // of the current providers; nil for none
	handover  processor.Handover               // of the earlier incarnations

	retryFirst time.Duration // hooks.Config's, 0 but in tests
	joined     bool          // an incarnation has accepted commands
}

// New returns a worker on this connection. It does nothing before Run.
func New(cfg Config, conn *events.Conn) *Node {
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	return &Node{cfg: cfg, conn: conn}
}

// Run runs the worker until ctx ends. When it loses its lease it waits for NATS and goes on as a new incarnation, with what ran. It
// calls ready once, when the worker accepts commands and has published its templates, or has logged why it could not. Errors: those of its
// parts that do not pass with NATS.
func (n *Node) Run(ctx context.Context, ready func()) error {
	var err error
	if n.templates, err = template.New(template.Config{Dir: n.cfg.Templates, Documents: n.cfg.Documents, Agents: n.cfg.AgentTemplates}); err != nil {
		return err
	}
	if n.allow, err = allow.New(n.cfg.Allow); err != nil {
		return err
	}
	if n.observer, err = observe.New(n.cfg.Log, n.cfg.Metrics); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "register metrics: %w", err)
	}
	if err := observe.Disk(n.cfg.Metrics, n.disk); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "register the metrics of the disk: %w", err)
	}
	// In parallel: the first waits for NATS, the second for this machine.
	var providers map[string]sandbox.Provider
	setUp, setUpCtx := errgroup.WithContext(ctx)
	setUp.Go(func() error { return n.ensure(setUpCtx) })
	setUp.Go(func() (err error) {
		if err := shortage.Check(); err != nil {
			return err // the sandboxes of an earlier worker wait for one that can open them
		}
		providers, err = n.providers()
		return err
	})
	if err := setUp.Wait(); err != nil {
		n.closeAll(providers)
		return err
	}
	recorder, err := n.makeHooks()
	if err != nil {
		n.closeAll(providers)
		return err
	}
	accepts := make(chan struct{})
	defer n.runHooks(ctx, recorder, accepts)()
	defer n.publishTemplates(ctx, accepts, sync.OnceFunc(ready))()
	return n.serve(ctx, providers, sync.OnceFunc(func() { close(accepts) }))
}

// disk is the room for workspaces, for the metrics.
func (n *Node) disk() schemas.WorkerDisk {
	if w := n.worker.Load(); w != nil {
		return w.Disk()
	}
	return schemas.WorkerDisk{}
}

// background runs f until ctx ends or wait is called. wait ends it and waits for it.
func background(ctx context.Context, f func(ctx context.Context)) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (n *Node) closeAll(providers map[string]sandbox.Provider) {
	for name, p := range providers {
		if err := p.Close(); err != nil {
			n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("close provider")
		}
	}
}

// leaveAll leaves the sandboxes of an earlier worker for the next one, because this one cannot start.
func (n *Node) leaveAll(providers map[string]sandbox.Provider) {
	for name, p := range providers {
		if r, ok := p.(sandbox.Reattacher); ok {
			if err := r.Detach(); err != nil {
				n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("leave sandboxes")
			}
		}
	}
}

// errStopped reports that the worker was stopped before it accepted commands. What an earlier incarnation left is not ended yet.
var errStopped = errors.New("the worker was stopped before it accepted commands")

// incarnation joins the cell and runs the worker until ctx ends or its lease is lost. Then it closes the providers: a lost lease leaves
// the sandboxes to those of the next incarnation. joining bounds what comes before the worker runs.
func (n *Node) incarnation(joining, ctx context.Context, providers map[string]sandbox.Provider, ready func()) error {
	defer n.closeAll(providers)
	defer n.maintain(ctx, providers)()
	n.observer.Reset()
	secrets := func(t *schemas.Template) (map[string]string, error) { return template.Secrets(t, n.cfg.Getenv) }
	member, err := membership.Join(joining, n.conn, processor.Config{
		Worker: n.cfg.Worker, Handover: &n.handover, Templates: n.templates, Allow: n.allow, Policy: n.observer.Policy(policy.New()), Hooks: n.hooks, Secrets: secrets,
		Providers: providers, DefaultProvider: n.cfg.Provider, Workspaces: n.cfg.Workspaces,
		ImageProvider: imageProvider(providers), Image: n.cfg.Image, Limits: n.cfg.Limits, Network: n.cfg.Network,
		Temporary: n.cfg.Temporary, MaxProcesses: n.cfg.Processes, MaxTenantProcesses: n.cfg.TenantProcesses, MaxThreadProcesses: n.cfg.ThreadProcesses, Quotas: n.cfg.Quotas, StopGrace: n.cfg.Grace, IdleTimeout: n.cfg.Idle, KeepWorkspaces: n.cfg.KeepWorkspaces, Log: n.cfg.Log,
	}, n.cfg.Begin, func(c *processor.Config) {
		c.Records, c.Roster = n.observer.Records(c.Records), roster{c.Roster, n}
	})
	if err == nil {
		n.worker.Store(member.Worker)
		err = member.Recover(joining)
	}
	switch {
	case err == nil:
		return member.Run(ctx, ready)
	case errors.Is(joining.Err(), context.Canceled):
		n.leaveAll(providers)
		return errStopped
	case n.joined && !n.passes(err) && (errors.Is(err, schemas.ErrConflict) || !errors.Is(err, schemas.ErrLost)):
		n.endAbandoned(joining, providers) // another worker with this id is in its place, for example
	default:
		n.leaveAll(providers)
	}
	return err
}
