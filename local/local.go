package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Config configures what a program runs inside itself. The zero value isolates.
type Config struct {
	// Provider is the kind of sandbox: jail, docker, or local, which isolates nothing. Default: the first of jail and docker that works here.
	Provider string
	// Image is the image of provider docker. Default: requests name one.
	Image string
	// Limits are the limits of each sandbox. Zero fields have the provider's defaults.
	Limits sandbox.Limits
	// Network is the network of sandboxes whose template names none. Default none.
	Network schemas.Network
	// Templates is a folder of templates. Default: only the built-in templates.
	Templates string
	// AgentTemplates are the names of the built-in agent templates that are switched on, such as claude-code, or "all". They share the
	// machine's network, and every command of their sessions can read the key of their model. Default: none.
	AgentTemplates []string
	// Allow is a file of what each tenant may use, as `sluice up --allow` has it. Default: none.
	Allow string
	// Hooks are Go hooks of templates, by name. Default: only the built-in hooks.
	Hooks map[string]any
	// Workspaces is the folder of the workspaces, which stay there. Default: a temporary folder, which Close removes.
	Workspaces string
	// Getenv reads the environment variables that templates name as secrets. Default: none is set.
	Getenv func(string) string
	// Log gets one line per command. Default: nothing is logged.
	Log zerolog.Logger
}

// Open starts a server and a worker in this process, and returns a client of them once the worker accepts commands. Only this process
// reaches them. Sessions, records and output are in a folder below [os.TempDir], for as long as the client is open: its Close ends
// what runs, with 10 s between SIGTERM and SIGKILL, and removes the folder. A program that is killed leaves the folder, and its
// sandboxes end within ten minutes. Of the options, [client.WithTenant] has an effect. Errors: invalid_argument, not_found for the
// templates, unavailable when no provider that isolates works here, those of the worker.
func Open(ctx context.Context, cfg Config, opts ...client.Option) (*client.Client, error) {
	dir, err := os.MkdirTemp("", "sl") // short, for unix sockets
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the folder of a local server: %w", err)
	}
	p := &parts{undo: []func(){func() {
		if err := removal.Path(dir); err != nil {
			cfg.Log.Warn().Err(err).Msg("the folder of the local server stays")
		}
	}}}
	c, err := p.open(ctx, dir, cfg, opts)
	if err != nil {
		p.close()
		return nil, err
	}
	return c, nil
}

// parts are what runs, in the order of its start.
type parts struct{ undo []func() }

func (p *parts) close() {
	for len(p.undo) > 0 {
		last := len(p.undo) - 1
		p.undo[last]()
		p.undo = p.undo[:last]
	}
}

func (p *parts) open(ctx context.Context, dir string, cfg Config, opts []client.Option) (*client.Client, error) {
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "create the run folder: %w", err)
	}
	choice, err := node.Choose(ctx, cfg.Provider, run)
	if err != nil {
		return nil, err
	}
	if cfg.Workspaces == "" {
		cfg.Workspaces = filepath.Join(dir, "workspaces")
	}
	if cfg.Workspaces, err = filepath.Abs(cfg.Workspaces); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "workspaces: %w", err)
	}
	limits, err := cfg.Limits.WithDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Network != "" && !slices.Contains(schemas.Networks(), cfg.Network) {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "unknown network %q: use none or host", cfg.Network)
	}
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Warn: func(err error) { cfg.Log.Warn().Err(err).Msg("NATS") }})
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, server.Close)
	stopServer, err := membership.Background(ctx, func(running context.Context, ready func()) error {
		ready()
		return server.Run(running)
	})
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, func() { _ = stopServer() }) // Run has no error
	own, err := p.connect(server, "worker")
	if err != nil {
		return nil, err
	}
	worker := node.New(node.Config{
		Worker: "local", Provider: choice.Default, Allowed: choice.Allowed,
		Topology: events.Topology{Partitions: 1, Room: server.Room() / 10 * 9}, // the rest is for the buckets
		Image:    cfg.Image, Limits: limits, Network: cfg.Network, Templates: cfg.Templates, AgentTemplates: cfg.AgentTemplates, Allow: cfg.Allow,
		Hooks: cfg.Hooks, Getenv: cfg.Getenv, Log: cfg.Log,
		RunFolder: run, Workspaces: cfg.Workspaces,
	}, own)
	stop, err := membership.Background(ctx, func(running context.Context, ready func()) error {
		running, cancel := context.WithCancel(running)
		defer cancel()
		started := context.AfterFunc(ctx, cancel) // ctx bounds the start alone
		return worker.Run(running, func() {
			started()
			ready()
		})
	})
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, func() {
		if err := stop(); err != nil && !errors.Is(err, context.Canceled) {
			cfg.Log.Warn().Err(err).Msg("the local worker ended with an error")
		}
	})
	conn, err := p.connect(server, "client")
	if err != nil {
		return nil, err
	}
	return client.New(conn, append(opts, client.WithClose(p.close))...)
}

func (p *parts) connect(server *embedded.Server, name string) (*events.Conn, error) {
	conn, err := events.Connect(events.Options{InProcess: server, Name: name})
	if err == nil {
		p.undo = append(p.undo, conn.Close)
	}
	return conn, err
}
