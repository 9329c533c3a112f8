package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/discover"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// read is the action of a command that only reads: f gets a client and the arguments.
func (g *globals) read(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return g.with(cmd.Context(), hostOptions{}, func(ctx context.Context, c *client.Client) error { return f(ctx, c, args) })
	}
}

// act is the action of a command that a worker carries out: f gets a client and the arguments.
func (g *globals) act(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return g.with(cmd.Context(), hostOptions{worker: true}, func(ctx context.Context, c *client.Client) error { return f(ctx, c, args) })
	}
}

// with connects, calls f and disconnects. Ctrl+C ends f and is no error.
func (g *globals) with(ctx context.Context, own hostOptions, f func(context.Context, *client.Client) error) error {
	ctx, stop := untilHangup(ctx)
	defer stop()
	c, err := g.connect(ctx, own)
	if err != nil {
		return err
	}
	err = f(ctx, c.client)
	if ctx.Err() != nil {
		err = ignoreCanceled(err)
	}
	return errors.Join(err, c.close(ctx))
}

// hostOptions are the options of a host in this process, where no server is found.
type hostOptions struct {
	worker  bool // it runs a worker, which the command needs: one that only reads must not own what runs
	limits  sandbox.Limits
	network schemas.Network
	named   string // the first of the flags of limits that was given; empty for none
	image   string // of containers, where a command names none
}

// connection is a client, and the finder of the process that hosts the data folder. finder is nil with --nats.
type connection struct {
	client *client.Client
	conn   *events.Conn
	finder *hostFinder
	hosted bool // this process was the host from the beginning
}

// connect connects to the server of --nats, to the process that holds the data folder, or to a host that it starts in this process.
func (g *globals) connect(ctx context.Context, own hostOptions) (*connection, error) {
	if err := g.checkCreds(); err != nil {
		return nil, err
	}
	if g.nats != "" {
		return g.connectTo(g.server())
	}
	dir, err := openFolder(g.data)
	if err != nil {
		return nil, err
	}
	f := &hostFinder{globals: g, ctx: ctx, folder: dir, own: own}
	c, err := f.connect()
	if err != nil {
		return nil, errors.Join(err, f.stop())
	}
	c.finder, c.hosted = f, f.current() != nil
	return c, nil
}

// checkCreds refuses credentials that no connection would use.
func (g *globals) checkCreds() error { return discover.CheckCreds(g.nats, g.creds) }

// server is how to connect to the server of --nats.
func (g *globals) server() *events.Options {
	return &events.Options{URL: g.nats, CredsFile: g.creds, CAFile: g.ca, Token: g.token, Tenant: g.tenant, Cell: g.cell, Domain: g.domain, Name: "sluice cli"}
}

// serverAt is how to connect to the server of the process that holds a data folder.
func (g *globals) serverAt(f *dataFolder, a address) *events.Options {
	o := a.Options(f.path, g.token, false)
	o.Cell, o.Name = g.cell, "sluice cli"
	return &o
}

// serverBehind is how to connect to a server that may move to another process, or to this one. Only that of a `sluice up` asks for the token.
func (g *globals) serverBehind(f *dataFolder, dial func() (net.Conn, error)) *events.Options {
	return &events.Options{URL: "nats://sluice", Dial: dial, TokenFrom: f.storedToken, Cell: g.cell, Name: "sluice cli"}
}

func (g *globals) connectTo(server *events.Options) (*connection, error) {
	conn, err := events.Connect(*server)
	if err != nil {
		return nil, err
	}
	c, err := client.New(conn, client.WithTenant(g.tenant))
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &connection{client: c, conn: conn}, nil
}

// checkLimits refuses flags of limits where another process has the worker. Errors: invalid_argument.
func (c *connection) checkLimits(own hostOptions) error {
	if own.named == "" || c.hosted {
		return nil
	}
	return schemas.Errorf(schemas.CodeInvalidArgument,
		"--%s is for a worker that exec starts itself, and here one runs already: start that one with it, or use a template with limits or a network", own.named)
}

// leaving reports what happens to a process when its caller exits before it.
func (c *connection) leaving(process string) string {
	if c.hosted {
		return "process " + process + " ran in this sluice and ends with it"
	}
	return "process " + process + " continues: `sluice logs -f " + process + "` follows it, `sluice process kill " + process + "` ends it"
}

// temporary reports whether the worker is in the process of a command: in this one, or in one that waits for this one.
func (c *connection) temporary() bool { return c.finder != nil && c.finder.temporary() }

// close closes the connection. A host in this process first waits for its guests, until ctx ends.
func (c *connection) close(ctx context.Context) error {
	c.conn.Close()
	if c.finder == nil {
		return nil
	}
	c.finder.waitForGuests(ctx)
	return c.finder.stop()
}

// hostFinder finds the process that hosts a data folder, or makes this process the host. It does so again whenever the connection
// breaks: when the host has ended, this process takes over its streams.
type hostFinder struct {
	*globals
	ctx    context.Context
	folder *dataFolder
	own    hostOptions

	mu      sync.Mutex
	host    *host
	stopped bool
	yields  sync.WaitGroup
}

// findTimeout bounds the wait for another process to start its server; findEvery is the time between two attempts.
const (
	findTimeout = 30 * time.Second
	findEvery   = 20 * time.Millisecond
)

func (f *hostFinder) connect() (*connection, error) {
	deadline := time.Now().Add(findTimeout)
	for {
		o, err := f.find()
		if err == nil && o != nil {
			var c *connection
			if c, err = f.connectTo(o); err == nil {
				return c, nil
			}
			// The address may be that of a process that is ending: try again.
		}
		if err != nil && (!errors.Is(err, schemas.ErrUnavailable) || o == nil || time.Now().After(deadline)) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "another sluice holds data folder %s and does not answer: stop it, or choose another folder with --data", f.folder.path)
		}
		select {
		case <-f.ctx.Done():
			return nil, f.ctx.Err()
		case <-time.After(findEvery):
		}
	}
}

// find returns how to connect to the host; nil while another process is starting.
func (f *hostFinder) find() (*events.Options, error) {
	h, err := f.becomeHost()
	if err != nil {
		return nil, err
	}
	a, known := f.address()
	switch {
	case h != nil, known && a.URL == "" && a.Socket != "":
		return f.serverBehind(f.folder, f.dial), nil
	case known && a.URL != "":
		return f.serverAt(f.folder, a), nil
	case known:
		return nil, schemas.Errorf(schemas.CodeConflict, "data folder %s is that of the `sluice worker` in process %d: name its NATS server with --nats, or another folder with --data", f.folder.path, a.PID)
	default:
		return nil, nil
	}
}

// address is the address of a host that this process can use: one that only reads gives way to one with a worker.
func (f *hostFinder) address() (address, bool) {
	a, known := f.folder.readAddress()
	return a, known && !(a.Reads && f.own.worker)
}

// temporary reports whether the host ends with the commands that use it.
func (f *hostFinder) temporary() bool {
	a, known := f.folder.readAddress()
	return f.current() != nil || known && a.URL == ""
}

// dial connects to the host's server, through its socket or in this process.
func (f *hostFinder) dial() (net.Conn, error) {
	h, err := f.becomeHost()
	if err != nil {
		return nil, err
	}
	if h != nil {
		return h.server.InProcessConn()
	}
	if a, ok := f.address(); ok {
		return a.Dial(f.own.worker)
	}
	return nil, fmt.Errorf("data folder %s: another sluice is starting", f.folder.path)
}

// becomeHost starts a host in this process if the folder's lock is free; otherwise it returns nil.
func (f *hostFinder) becomeHost() (*host, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.host != nil || f.stopped {
		return f.host, nil
	}
	lock, ok, err := f.folder.lock(f.ctx, f.own.worker)
	if err != nil || !ok {
		return nil, err
	}
	cfg, err := f.config()
	if err != nil {
		lock.release()
		return nil, err
	}
	h, err := startHost(f.ctx, lock, cfg)
	if err != nil {
		lock.release()
		return nil, err
	}
	f.host = h
	if err := h.waitReady(f.ctx); err != nil {
		return nil, err
	}
	if h.yields != nil {
		f.yields.Go(func() { f.yield(h) })
	}
	return h, h.announce()
}

// yield ends the host as soon as another process asks for the folder. Then the connection goes on as that one's guest.
func (f *hostFinder) yield(h *host) {
	select {
	case asked := <-h.yields:
		f.mu.Lock()
		f.host = nil
		f.mu.Unlock()
		_ = h.stop() // the next host reports what is wrong with the folder
		asked.done()
	case <-h.done:
	}
}

// config configures a host for one user's commands. They may name local besides the providers of auto.
func (f *hostFinder) config() (hostConfig, error) {
	worker, err := f.folder.workerID()
	if err != nil {
		return hostConfig{}, err
	}
	run, err := f.folder.runFolder()
	if err != nil {
		return hostConfig{}, err
	}
	cfg := hostConfig{folder: f.folder, cell: f.cell, reads: !f.own.worker, reload: make(reloads), node: node.Config{Worker: worker, RunFolder: run}}
	cfg.node.Topology.Keep = true
	if cfg.reads {
		return cfg, nil
	}
	documents, err := f.documentLimits()
	if err != nil {
		return hostConfig{}, err
	}
	choice, err := node.Choose(f.ctx, schemas.ProviderAuto, run)
	if err != nil {
		choice = node.Choice{} // only providers without isolation are left
	}
	cfg.node = node.Config{
		Worker: worker, Begin: f.folder.begin, Provider: choice.Default, Allowed: append(choice.Allowed, node.Unisolated()...), Image: f.own.image, Progress: f.notice,
		Limits: f.own.limits.Or(sandbox.LimitsOf(&documents)), Network: f.own.network,
		RunFolder: run, Workspaces: f.folder.join("workspaces"), Log: zerolog.Nop(), Topology: cfg.node.Topology,
		// A process of this host that still runs when it ends was left by its user: it ends at once.
		Temporary: true, Grace: time.Millisecond, Templates: f.templates, AgentTemplates: f.agents, Allow: f.allow, Documents: documents, Reload: cfg.reload, Getenv: f.Getenv,
	}
	return cfg, nil
}

// current is the host in this process; nil where another process is the host.
func (f *hostFinder) current() *host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host
}

// quietWait is how long a host waits for its guests before it prints a notice, and for those that go on without it.
const quietWait = 100 * time.Millisecond

// waitForGuests waits for the commands that use the host in this process, until ctx ends. Those that only read go on without it, but a
// request of theirs may be under way.
func (f *hostFinder) waitForGuests(ctx context.Context) {
	h := f.current()
	if h == nil || h.bridge == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, quietWait)
	err := h.bridge.waitForWork(short)
	cancel()
	if err != nil && ctx.Err() == nil {
		f.notice("other sluice commands use the server in this process: waiting for them (Ctrl+C exits at once and ends what they run)")
		_ = h.bridge.waitForWork(ctx) // after Ctrl+C they connect to another host, or become it
	}
	short, cancel = context.WithTimeout(ctx, quietWait)
	defer cancel()
	_ = h.bridge.waitForReads(short)
}

// stop ends the host, if this process is one.
func (f *hostFinder) stop() error {
	f.mu.Lock()
	h := f.host
	f.stopped = true
	f.mu.Unlock()
	defer f.yields.Wait()
	if h == nil {
		return nil
	}
	return h.stop()
}
