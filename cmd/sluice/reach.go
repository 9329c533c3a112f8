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

// session of the command line: a connection, and the host behind it when this process had to become one.
type reached struct {
	client *client.Client
	conn   *events.Conn
	finder *finder
}

// hosting is what a host in this process makes of sandboxes.
type hosting struct {
	limits sandbox.Limits
	image  string // of provider docker, where a command names none
}

// reach connects to the server the flags name, to the one that holds the data folder, or to one it starts in this process.
func (m *Main) reach(ctx context.Context, g *globals, own hosting) (*reached, error) {
	if g.nats != "" {
		conn, err := events.Connect(events.Options{URL: g.nats, CredsFile: g.creds, Token: g.token, Cell: g.cell, Name: "sluice cli"})
		if err != nil {
			return nil, err
		}
		return newReached(conn, g, nil)
	}
	dir, err := openFolder(g.data)
	if err != nil {
		return nil, err
	}
	f := &finder{ctx: ctx, folder: dir, cell: g.cell, own: own, templates: g.templates, say: m.note}
	conn, err := f.connect(g)
	if err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return newReached(conn, g, f)
}

func newReached(conn *events.Conn, g *globals, f *finder) (*reached, error) {
	c, err := client.New(conn, client.WithTenant(g.tenant))
	if err != nil {
		conn.Close()
		if f != nil {
			err = errors.Join(err, f.stop())
		}
		return nil, err
	}
	return &reached{client: c, conn: conn, finder: f}, nil
}

// leaving says what becomes of a process whose caller leaves before its end.
func (r *reached) leaving(process string) string {
	if r.finder != nil && r.finder.hosts() {
		return "left: process " + process + " ran in this program, and ends with it"
	}
	return "left: process " + process + " goes on; `sluice logs -f " + process + "` follows it, `sluice process kill " + process + "` ends it"
}

// close ends the connection. A host in this process first lets its guests finish, as long as ctx allows.
func (r *reached) close(ctx context.Context, waiting func(guests string)) error {
	r.conn.Close()
	if r.finder == nil {
		return nil
	}
	r.finder.reattachWindow(ctx, waiting)
	return r.finder.stop()
}

// finder finds the process that holds a data folder, or becomes it. It is asked again whenever the connection breaks: when the
// holder has gone, this process takes over its streams.
type finder struct {
	ctx       context.Context
	folder    *folder
	cell      string
	own       hosting
	templates string
	say       func(text string)

	mu      sync.Mutex
	host    *host
	stopped bool
}

// findPatience is how long another process may take to start its server.
const (
	findPatience = 30 * time.Second
	findEvery    = 20 * time.Millisecond
)

// connect finds or becomes the holder, and connects to it.
func (f *finder) connect(g *globals) (*events.Conn, error) {
	deadline := time.Now().Add(findPatience)
	for {
		o, err := f.find(g)
		var conn *events.Conn
		if err == nil && o != nil {
			if conn, err = events.Connect(*o); err == nil {
				return conn, nil
			}
			// The address may be that of a process that is going: look again.
		}
		if err != nil && (!errors.Is(err, schemas.ErrUnavailable) || o == nil || time.Now().After(deadline)) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "data folder %s is held by another sluice that does not answer: stop it, or choose another with --data", f.folder.path)
		}
		select {
		case <-f.ctx.Done():
			return nil, f.ctx.Err()
		case <-time.After(findEvery):
		}
	}
}

// find says how to reach the holder; nil where another process is about to be it.
func (f *finder) find(g *globals) (*events.Options, error) {
	o := &events.Options{Cell: g.cell, Name: "sluice cli", URL: "nats://sluice", Dial: f.dial}
	h, err := f.become()
	switch a, known := f.folder.readAddress(); {
	case err != nil:
		return nil, err
	case h != nil:
		return o, nil
	case known && a.URL != "":
		o.URL, o.Token, o.Dial = a.URL, or(g.token, f.folder.storedToken()), nil
		return o, nil
	case known:
		return o, nil
	default:
		return nil, nil
	}
}

// dial reaches the holder's server, by its socket or in this process.
func (f *finder) dial() (net.Conn, error) {
	h, err := f.become()
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

// become starts a host in this process if the folder's lock is free; else it returns nil.
func (f *finder) become() (*host, error) {
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

// config is that of a host for the commands of one user: what they ask for, they get, and whatever isolates is not asked for.
func (f *finder) config() (hostConfig, error) {
	worker, err := f.folder.workerID()
	if err != nil {
		return hostConfig{}, err
	}
	run, err := f.folder.runFolder()
	if err != nil {
		return hostConfig{}, err
	}
	isolates, err := node.Choose(f.ctx, node.Auto)
	if err != nil {
		isolates = node.Choice{} // what does not isolate can be asked for all the same
	}
	return hostConfig{folder: f.folder, cell: f.cell, node: node.Config{
		Worker: worker, Provider: isolates.Default, Allowed: append(isolates.Allowed, node.Local), Limits: f.own.limits, Image: f.own.image, Progress: f.say,
		RunFolder: run, Workspaces: f.folder.join("workspaces"), Log: zerolog.Nop(),
		// What still runs when this host ends is that of a person who has left, at once.
		Grace: time.Millisecond, Templates: f.templates,
	}}, nil
}

// hosts says whether this process holds the folder.
func (f *finder) hosts() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.host != nil
}

// reattachWindow waits for the commands that share this process's host.
func (f *finder) reattachWindow(ctx context.Context, waiting func(string)) {
	f.mu.Lock()
	h := f.host
	f.mu.Unlock()
	if h == nil || h.bridge == nil {
		return
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	err := h.bridge.empty(short)
	cancel()
	if err == nil || ctx.Err() != nil {
		return
	}
	waiting("other sluice commands use the server in this one: waiting for them (Ctrl+C leaves at once, which ends what they run)")
	_ = h.bridge.empty(ctx) // leaving is allowed: they find another server, or become it
}

// stop ends the host, if this process became one.
func (f *finder) stop() error {
	f.mu.Lock()
	h := f.host
	f.stopped = true
	f.mu.Unlock()
	if h == nil {
		return nil
	}
	return h.stop()
}
