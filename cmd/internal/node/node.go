package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Config says what worker to run. The fields without a default are required.
type Config struct {
	// Worker is the worker's id, the same after a restart.
	Worker string
	// Topology is how the cell's streams are set up. The zero value suits one machine.
	Topology events.Topology
	// Provider is the kind of sandbox for commands that name none; empty refuses those.
	Provider string
	// Allowed are the providers that commands may name.
	Allowed []string
	// Image is what provider docker makes containers from where a command names none. Default: such a command is refused.
	Image string
	// Limits bound each sandbox. Zero fields have the provider's defaults.
	Limits sandbox.Limits
	// Progress is told in words how the pull of an image goes on, a few times a minute. Default: it is logged.
	Progress func(text string)
	// PoolSize is how many containers are kept ready. Default 0: none.
	PoolSize int
	// RunFolder is where sockets live; Workspaces where each thread has its workspace. Both absolute.
	RunFolder, Workspaces string
	// Processes, Grace and Idle are processor.Config's MaxProcesses, StopGrace and IdleTimeout, with its defaults.
	Processes   int
	Grace, Idle time.Duration
	// PrivateHooks lets HTTP hooks reach loopback and private addresses. Default: they reach public ones alone, by HTTPS.
	PrivateHooks bool
	// Hooks are Go hooks by name, for templates to name. Default: the built-in ones alone.
	Hooks map[string]any
	// Templates is a folder of templates. Default: the built-in ones alone.
	Templates string
	// Reload has the folder read anew at each word. Default: never.
	Reload <-chan struct{}
	// Metrics is where the worker's metrics are registered. Default: nowhere that anybody looks.
	Metrics *prometheus.Registry
	// Log gets one line for each command. Default: nothing is logged.
	Log zerolog.Logger
}

// Node is a worker, wired to NATS and to its providers.
type Node struct {
	cfg       Config
	conn      *events.Conn
	templates *template.Store
	observer  *observe.Observer
	hooks     *hooks.Chains
	worker    atomic.Pointer[processor.Worker] // the incarnation that is running
}

// New is a worker on this connection. It does nothing before Run.
func New(cfg Config, conn *events.Conn) *Node {
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	return &Node{cfg: cfg, conn: conn}
}

// Run runs the worker until ctx ends, and starts it anew as another incarnation when it loses its lease. ready is called
// once, when it accepts commands. Errors: those of its parts' constructors, unavailable when JetStream is not there.
func (n *Node) Run(ctx context.Context, ready func()) error {
	var err error
	if n.templates, err = template.New(n.cfg.Templates); err != nil {
		return err
	}
	if n.observer, err = observe.New(n.cfg.Log, n.cfg.Metrics); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "register metrics: %w", err)
	}
	// The two do not need each other: one is NATS's work, the other this machine's.
	var providers map[string]sandbox.Provider
	setUp, setUpCtx := errgroup.WithContext(ctx)
	setUp.Go(func() error { return n.conn.Ensure(setUpCtx, n.cfg.Topology) })
	setUp.Go(func() (err error) {
		providers, err = n.providers()
		return err
	})
	err = setUp.Wait()
	defer n.closeAll(providers)
	if err != nil {
		return err
	}
	defer n.keep(ctx, providers)()
	recorder, err := n.makeHooks()
	if err != nil {
		return err
	}
	defer n.runHooks(ctx, recorder)()
	accepts := make(chan struct{})
	defer n.keepTemplates(ctx, accepts)()
	begun := sync.OnceFunc(func() {
		ready()
		close(accepts)
	})
	for {
		err := n.incarnation(ctx, providers, begun)
		if ctx.Err() != nil || !errors.Is(err, schemas.ErrLost) {
			return err
		}
		n.cfg.Log.Warn().Err(err).Msg("lease lost: beginning anew")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (n *Node) closeAll(providers map[string]sandbox.Provider) {
	for name, p := range providers {
		if err := p.Close(); err != nil {
			n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("close provider")
		}
	}
}

// leaveAll keeps what was found of an earlier worker for the next one: this one cannot begin.
func (n *Node) leaveAll(providers map[string]sandbox.Provider) {
	for name, p := range providers {
		if r, ok := p.(sandbox.Reattacher); ok {
			if err := r.Detach(); err != nil {
				n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("leave sandboxes")
			}
		}
	}
}

func (n *Node) incarnation(ctx context.Context, providers map[string]sandbox.Provider, ready func()) error {
	n.observer.Reset()
	incarnation := ulid.Make().String()
	inlet := n.conn.NewInlet(n.cfg.Worker)
	lease, err := n.conn.AcquireLease(ctx, n.cfg.Worker, incarnation)
	if err != nil {
		return err
	}
	worker, err := processor.New(processor.Config{
		Worker: n.cfg.Worker, Incarnation: incarnation,
		Records: n.observer.Records(n.conn), Sessions: n.conn, Threads: inlet, Roster: roster{n.conn, n.templates}, History: n.conn,
		OpenOutput: func(p schemas.ProcessRef, after *schemas.LogRange, stored func(schemas.Stream, int64)) processor.Output {
			return n.conn.ResumeLog(p, after, stored)
		},
		Replay: func(ctx context.Context, p schemas.ProcessRef, fn func(schemas.Stream, int64, []byte)) (*schemas.LogRange, error) {
			return n.conn.Replay(ctx, p, func(k schemas.Chunk) error {
				fn(k.Stream, k.Offset, k.Data)
				return nil
			})
		},
		Answer: n.conn.Answer, MaxRecord: n.conn.MaxPayload(), Holds: lease.Holds,
		Templates: n.templates, Policy: n.observer.Policy(policy.New()), Hooks: n.hooks, Secrets: n.secrets,
		Providers: providers, DefaultProvider: n.cfg.Provider, Workspaces: n.cfg.Workspaces,
		ImageProvider: imageProvider(providers), Image: n.cfg.Image, Limits: n.cfg.Limits,
		MaxProcesses: n.cfg.Processes, StopGrace: n.cfg.Grace, IdleTimeout: n.cfg.Idle, Log: n.cfg.Log,
	})
	if err != nil {
		return err
	}
	n.worker.Store(worker)
	if err := worker.Recover(ctx); err != nil {
		if ctx.Err() == nil {
			n.leaveAll(providers)
		}
		return err
	}
	// The lease outlives the work: until the last record is written nobody else may think this worker dead.
	leaseCtx, endLease := context.WithCancel(context.WithoutCancel(ctx))
	defer endLease()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := lease.Run(leaseCtx, incarnation, func(ctx context.Context) {
			if err := worker.Register(ctx); err != nil {
				n.cfg.Log.Debug().Err(err).Msg("register")
			}
		})
		if errors.Is(err, schemas.ErrLost) {
			worker.Fence()
		}
		return err
	})
	group.Go(func() error { return inlet.Run(ctx, worker, ready) })
	group.Go(func() error {
		defer endLease()
		return worker.Run(ctx)
	})
	return group.Wait()
}
