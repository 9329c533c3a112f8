package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// call is the action of a command that calls the server: f gets a client and the arguments.
func (g *globals) call(f func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return g.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return f(ctx, c, args) })
	}
}

// with connects, calls f and disconnects. Ctrl+C ends f and is no error.
func (g *globals) with(ctx context.Context, f func(context.Context, *client.Client) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	c, err := g.connect(ctx, hostOptions{})
	if err != nil {
		return err
	}
	err = f(ctx, c.client)
	if ctx.Err() != nil {
		err = ignoreCanceled(err)
	}
	return errors.Join(err, c.close(ctx))
}

// hostOptions are the options of a worker in this process, where no server is found.
type hostOptions struct {
	limits sandbox.Limits
	image  string // of containers, where a command names none
}

// connection is a client, and the finder of the process that hosts the data folder. finder is nil with --nats.
type connection struct {
	client *client.Client
	conn   *events.Conn
	finder *hostFinder
}

// connect connects to the server of --nats, to the process that holds the data folder, or to a host that it starts in this process.
func (g *globals) connect(ctx context.Context, own hostOptions) (*connection, error) {
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
	c.finder = f
	return c, nil
}

// server is how to connect to the server of --nats.
func (g *globals) server() *events.Options {
	return &events.Options{URL: g.nats, CredsFile: g.creds, Token: g.token, Cell: g.cell, Domain: g.domain, Name: "sluice cli"}
}

// serverAt is how to connect to the server of a `sluice up`.
func (g *globals) serverAt(f *dataFolder, a address) *events.Options {
	return &events.Options{URL: a.URL, Token: cmp.Or(g.token, f.storedToken()), Cell: g.cell, Name: "sluice cli"}
}

// serverBehind is how to connect to a server in another process, or in this one.
func (g *globals) serverBehind(dial func() (net.Conn, error)) *events.Options {
	return &events.Options{URL: "nats://sluice", Dial: dial, Cell: g.cell, Name: "sluice cli"}
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

// leaving reports what happens to a process when its caller exits before it.
func (c *connection) leaving(process string) string {
	if c.finder != nil && c.finder.current() != nil {
		return "process " + process + " ran in this sluice and ends with it"
	}
	return "process " + process + " continues: `sluice logs -f " + process + "` follows it, `sluice process kill " + process + "` ends it"
}

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
	a, known := f.folder.readAddress()
	switch {
	case h != nil, known && a.URL == "":
		return f.serverBehind(f.dial), nil
	case known:
		return f.serverAt(f.folder, a), nil
	default:
		return nil, nil
	}
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
	if a, ok := f.folder.readAddress(); ok && a.Socket != "" {
		return a.dial()
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
	lock, ok, err := f.folder.lock()
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
	return h, h.announce()
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
	choice, err := node.Choose(f.ctx, schemas.ProviderAuto, run)
	if err != nil {
		choice = node.Choice{} // only providers without isolation are left
	}
	return hostConfig{folder: f.folder, cell: f.cell, node: node.Config{
		Worker: worker, Begin: f.folder.begin, Provider: choice.Default, Allowed: append(choice.Allowed, node.Unisolated()...), Limits: f.own.limits, Image: f.own.image, Progress: f.notice,
		RunFolder: run, Workspaces: f.folder.join("workspaces"), Log: zerolog.Nop(),
		// A process that still runs when this host ends was left by its user: it ends at once.
		Alone: true, Grace: time.Millisecond, Templates: f.templates, Getenv: f.Getenv,
	}}, nil
}

// current is the host in this process; nil where another process is the host.
func (f *hostFinder) current() *host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host
}

// quietWait is how long a host waits for its guests before it prints a notice.
const quietWait = 100 * time.Millisecond

// waitForGuests waits for the commands that use the host in this process, until ctx ends.
func (f *hostFinder) waitForGuests(ctx context.Context) {
	h := f.current()
	if h == nil || h.bridge == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, quietWait)
	err := h.bridge.wait(short)
	cancel()
	if err == nil || ctx.Err() != nil {
		return
	}
	f.notice("other sluice commands use the server in this process: waiting for them (Ctrl+C exits at once and ends what they run)")
	_ = h.bridge.wait(ctx) // after Ctrl+C they connect to another host, or become it
}

// stop ends the host, if this process is one.
func (f *hostFinder) stop() error {
	f.mu.Lock()
	h := f.host
	f.stopped = true
	f.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.stop()
}
