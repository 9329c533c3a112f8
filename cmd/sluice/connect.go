package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// with connects, calls f and disconnects. Ctrl+C ends f and is no error.
func (m *Main) with(ctx context.Context, g *globals, f func(context.Context, *client.Client) error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	c, err := m.connect(ctx, g, hostOptions{})
	if err != nil {
		return err
	}
	err = f(ctx, c.client)
	if ctx.Err() != nil {
		err = ignoreCanceled(err)
	}
	return errors.Join(err, c.close(ctx, m.notice))
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
func (m *Main) connect(ctx context.Context, g *globals, own hostOptions) (*connection, error) {
	if g.nats != "" {
		conn, err := events.Connect(events.Options{URL: g.nats, CredsFile: g.creds, Token: g.token, Cell: g.cell, Name: "sluice cli"})
		if err != nil {
			return nil, err
		}
		return newConnection(conn, g, nil)
	}
	dir, err := openFolder(g.data)
	if err != nil {
		return nil, err
	}
	f := &hostFinder{ctx: ctx, folder: dir, cell: g.cell, own: own, templates: g.templates, progress: m.notice, getenv: m.Getenv}
	conn, err := f.connect(g)
	if err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return newConnection(conn, g, f)
}

func newConnection(conn *events.Conn, g *globals, f *hostFinder) (*connection, error) {
	c, err := client.New(conn, client.WithTenant(g.tenant))
	if err != nil {
		conn.Close()
		if f != nil {
			err = errors.Join(err, f.stop())
		}
		return nil, err
	}
	return &connection{client: c, conn: conn, finder: f}, nil
}

// leaving reports what happens to a process when its caller exits before it.
func (c *connection) leaving(process string) string {
	if c.finder != nil && c.finder.hosting() {
		return "process " + process + " ran in this sluice and ends with it"
	}
	return "process " + process + " continues: `sluice logs -f " + process + "` follows it, `sluice process kill " + process + "` ends it"
}

// close closes the connection. A host in this process first waits for its guests, until ctx ends.
func (c *connection) close(ctx context.Context, notice func(string)) error {
	c.conn.Close()
	if c.finder == nil {
		return nil
	}
	c.finder.waitForGuests(ctx, notice)
	return c.finder.stop()
}

// hostFinder finds the process that hosts a data folder, or makes this process the host. It does so again whenever the connection
// breaks: when the host has ended, this process takes over its streams.
type hostFinder struct {
	ctx       context.Context
	folder    *dataFolder
	cell      string
	own       hostOptions
	templates string
	progress  func(text string)
	getenv    func(string) string

	mu      sync.Mutex
	host    *host
	stopped bool
}

// findTimeout bounds the wait for another process to start its server; findEvery is the time between two attempts.
const (
	findTimeout = 30 * time.Second
	findEvery   = 20 * time.Millisecond
)

// connect connects to the host.
func (f *hostFinder) connect(g *globals) (*events.Conn, error) {
	deadline := time.Now().Add(findTimeout)
	for {
		o, err := f.find(g)
		if err == nil && o != nil {
			var conn *events.Conn
			if conn, err = events.Connect(*o); err == nil {
				return conn, nil
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
func (f *hostFinder) find(g *globals) (*events.Options, error) {
	h, err := f.becomeHost()
	if err != nil {
		return nil, err
	}
	a, known := f.folder.readAddress()
	switch {
	case h != nil, known && a.URL == "":
		return &events.Options{Cell: g.cell, Name: "sluice cli", URL: "nats://sluice", Dial: f.dial}, nil
	case known:
		return g.serverAt(f.folder, a), nil
	default:
		return nil, nil
	}
}

// serverAt returns how to connect to the server of a `sluice up`.
func (g *globals) serverAt(f *dataFolder, a address) *events.Options {
	return &events.Options{Cell: g.cell, Name: "sluice cli", URL: a.URL, Token: or(g.token, f.storedToken())}
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
		return net.DialTimeout("unix", a.Socket, time.Second)
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
	choice, err := node.Choose(f.ctx, schemas.ProviderAuto)
	if err != nil {
		choice = node.Choice{} // only providers without isolation are left
	}
	return hostConfig{folder: f.folder, cell: f.cell, node: node.Config{
		Worker: worker, Begin: f.folder.begin, Provider: choice.Default, Allowed: append(choice.Allowed, node.Unisolated()...), Limits: f.own.limits, Image: f.own.image, Progress: f.progress,
		RunFolder: run, Workspaces: f.folder.join("workspaces"), Log: zerolog.Nop(),
		// A process that still runs when this host ends was left by its user: it ends at once.
		Grace: time.Millisecond, Templates: f.templates, Getenv: f.getenv,
	}}, nil
}

// hosting reports whether this process is the host.
func (f *hostFinder) hosting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host != nil
}

// quietWait is how long a host waits for its guests before it prints a notice.
const quietWait = 100 * time.Millisecond

// waitForGuests waits for the commands that use the host in this process, until ctx ends.
func (f *hostFinder) waitForGuests(ctx context.Context, notice func(string)) {
	f.mu.Lock()
	h := f.host
	f.mu.Unlock()
	if h == nil || h.bridge == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, quietWait)
	err := h.bridge.wait(short)
	cancel()
	if err == nil || ctx.Err() != nil {
		return
	}
	notice("other sluice commands use the server in this process: waiting for them (Ctrl+C exits at once and ends what they run)")
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
