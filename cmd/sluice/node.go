package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

// nodeConfig says what worker to run.
type nodeConfig struct {
	worker     string
	topology   events.Topology
	provider   string // the default one; empty for none
	allowed    []string
	runFolder  string
	workspaces string
	processes  int
	grace      time.Duration
	idle       time.Duration
	log        zerolog.Logger
}

// node is a worker, wired.
type node struct {
	cfg  nodeConfig
	conn *events.Conn
}

// run runs the worker until ctx ends, and starts it anew as another incarnation when it loses its lease. ready is called once, when it
// accepts commands.
func (n *node) run(ctx context.Context, ready func()) error {
	if err := n.conn.Ensure(ctx, n.cfg.topology); err != nil {
		return err
	}
	for {
		err := n.incarnation(ctx, ready)
		ready = func() {}
		if ctx.Err() != nil || !errors.Is(err, schemas.ErrLost) {
			return err
		}
		n.cfg.log.Warn().Err(err).Msg("lease lost: beginning anew")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (n *node) incarnation(ctx context.Context, ready func()) error {
	providers, err := n.providers()
	if err != nil {
		return err
	}
	defer func() {
		for name, p := range providers {
			if err := p.Close(); err != nil {
				n.cfg.log.Warn().Err(err).Str("provider", name).Msg("close provider")
			}
		}
	}()
	incarnation := ulid.Make().String()
	inlet := n.conn.NewInlet(n.cfg.worker)
	worker, err := processor.New(processor.Config{
		Worker: n.cfg.worker, Incarnation: incarnation,
		Records: n.conn, Sessions: n.conn, Threads: inlet, Roster: n.conn, History: n.conn,
		OpenOutput: func(tenant, thread, process string, epoch uint64, stored func(schemas.Stream, int64)) processor.Output {
			return n.conn.OpenLog(events.ProcessRef{Tenant: tenant, Thread: thread, Process: process, Epoch: epoch}, stored)
		},
		Answer: n.conn.Answer, MaxRecord: n.conn.MaxPayload(),
		Providers: providers, DefaultProvider: n.cfg.provider, Workspaces: n.cfg.workspaces,
		MaxProcesses: n.cfg.processes, StopGrace: n.cfg.grace, IdleTimeout: n.cfg.idle, Log: n.cfg.log,
	})
	if err != nil {
		return err
	}
	lease, err := n.conn.AcquireLease(ctx, n.cfg.worker, incarnation)
	if err != nil {
		return err
	}
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
				n.cfg.log.Debug().Err(err).Msg("register")
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

// providers makes the providers the operator allows.
func (n *node) providers() (map[string]sandbox.Provider, error) {
	out := make(map[string]sandbox.Provider)
	for _, name := range n.cfg.allowed {
		switch name {
		case providerLocal:
			p, err := local.New(local.Config{RunDir: n.cfg.runFolder, Warn: func(text string) {
				n.cfg.log.Warn().Msg(text)
			}})
			if err != nil {
				return nil, err
			}
			out[name] = p
		default:
			return nil, schemas.Errorf(schemas.CodeInvalidArgument, "provider: there is no provider %q in this version: local is", name)
		}
	}
	return out, nil
}

// Names of providers.
const (
	providerAuto  = "auto"
	providerLocal = "local"
)

// chooseProvider is the default provider of a worker that was started with this --provider. auto never chooses local.
func chooseProvider(name string) (string, error) {
	switch name {
	case "", providerAuto:
		return "", schemas.Errorf(schemas.CodeUnavailable,
			"no provider that isolates commands is in this version on %s: choose `--provider local` if you trust what you run, since it isolates nothing; `sluice doctor` tells more", runtime.GOOS)
	case providerLocal:
		return name, nil
	default:
		return "", schemas.Errorf(schemas.CodeInvalidArgument, "provider: there is no provider %q in this version: local is", name)
	}
}
