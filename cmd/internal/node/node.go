package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/processor"
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
	// Log gets one line for each command. Default: nothing is logged.
	Log zerolog.Logger
}

// Node is a worker, wired to NATS and to its providers.
type Node struct {
	cfg    Config
	conn   *events.Conn
	hooks  *hooks.Chains
	worker atomic.Pointer[processor.Worker] // the incarnation that is running

	templates processor.Templates // nil: the worker's own configuration is the one there is
}

// New is a worker on this connection. It does nothing before Run.
func New(cfg Config, conn *events.Conn) *Node { return &Node{cfg: cfg, conn: conn} }

// Run runs the worker until ctx ends, and starts it anew as another incarnation when it loses its lease. ready is called
// once, when it accepts commands. Errors: those of its parts' constructors, unavailable when JetStream is not there.
func (n *Node) Run(ctx context.Context, ready func()) error {
	// The two do not need each other: one is NATS's work, the other this machine's.
	var providers map[string]sandbox.Provider
	setUp, setUpCtx := errgroup.WithContext(ctx)
	setUp.Go(func() error { return n.conn.Ensure(setUpCtx, n.cfg.Topology) })
	setUp.Go(func() (err error) {
		providers, err = n.providers()
		return err
	})
	err := setUp.Wait()
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
	for {
		err := n.incarnation(ctx, providers, ready)
		ready = func() {}
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

func (n *Node) incarnation(ctx context.Context, providers map[string]sandbox.Provider, ready func()) error {
	incarnation := ulid.Make().String()
	inlet := n.conn.NewInlet(n.cfg.Worker)
	lease, err := n.conn.AcquireLease(ctx, n.cfg.Worker, incarnation)
	if err != nil {
		return err
	}
	worker, err := processor.New(processor.Config{
		Worker: n.cfg.Worker, Incarnation: incarnation,
		Records: n.conn, Sessions: n.conn, Threads: inlet, Roster: n.conn, History: n.conn,
		OpenOutput: func(tenant, thread, process string, epoch uint64, stored func(schemas.Stream, int64)) processor.Output {
			return n.conn.OpenLog(events.ProcessRef{Tenant: tenant, Thread: thread, Process: process, Epoch: epoch}, stored)
		},
		Answer: n.conn.Answer, MaxRecord: n.conn.MaxPayload(), Holds: lease.Holds,
		Providers: providers, DefaultProvider: n.cfg.Provider, Workspaces: n.cfg.Workspaces,
		MaxProcesses: n.cfg.Processes, StopGrace: n.cfg.Grace, IdleTimeout: n.cfg.Idle, Log: n.cfg.Log, Hooks: n.hooks, Templates: n.templates,
	})
	if err != nil {
		return err
	}
	n.worker.Store(worker)
	if err := worker.Recover(ctx); err != nil {
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
