package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/discover"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/schemas"
)

// hostConfig configures a host. The lock of its folder is held.
type hostConfig struct {
	folder     *dataFolder
	reads      bool   // there is no worker: the commands only read
	listen     string // empty: a unix socket, for other commands of this user
	tls        tlsFlags
	durability embedded.Durability
	node       node.Config
	reload     reloads // of the worker
	cell       string
}

// host is a NATS server on a data folder in this process, and a worker unless it is for commands that only read.
type host struct {
	cfg        hostConfig
	lock       *folderLock
	server     *embedded.Server
	bridge     *bridge            // nil when the server listens on an address
	yields     chan *yieldRequest // receives at most one; nil with a worker
	cancel     context.CancelFunc // ends the worker
	ready      chan struct{}
	workerDone chan struct{} // closed when the worker has ended, with workerErr set
	workerErr  error
	endServer  context.CancelFunc
	done       chan struct{} // closed when the host has ended, with err set
	err        error
}

// startHost starts the server and the worker. It returns when the server accepts connections; waitReady waits for the worker, or for
// the streams. The host keeps the lock until stop returns. Errors: those of the server and of the folder.
func startHost(ctx context.Context, lock *folderLock, cfg hostConfig) (*host, error) {
	token := ""
	var err error
	if cfg.listen != "" {
		if token, err = cfg.folder.token(); err != nil {
			return nil, err
		}
	}
	server, err := embedded.Start(embedded.Config{
		Dir: cfg.folder.join("nats"), Listen: cfg.listen, Token: token, CertFile: cfg.tls.cert, KeyFile: cfg.tls.key, Durability: cfg.durability,
		Warn: func(err error) { cfg.node.Log.Warn().Err(err).Msg("NATS") },
	})
	if err != nil {
		return nil, err
	}
	h := &host{cfg: cfg, lock: lock, server: server, ready: make(chan struct{}), workerDone: make(chan struct{}), done: make(chan struct{})}
	conn, control, err := h.open(token)
	if err != nil {
		server.Close()
		return nil, err
	}
	// Only stop ends the host: commands that still run decide when.
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	group, workCtx := errgroup.WithContext(ctx)
	serverCtx, endServer := context.WithCancel(context.WithoutCancel(ctx))
	h.endServer = endServer
	group.Go(func() error {
		defer close(h.workerDone)
		defer func() {
			if ctx.Err() == nil { // it has failed: its callers get an error at once
				endServer()
			}
		}()
		defer conn.Close()
		h.workerErr = ignoreCanceled(h.work(workCtx, conn, sync.OnceFunc(func() { close(h.ready) })))
		return h.workerErr
	})
	group.Go(func() error { return server.Run(serverCtx) })
	if h.bridge != nil {
		group.Go(func() error { return h.bridge.run(serverCtx) })
	}
	group.Go(func() error { return control.run(serverCtx) })
	go func() {
		defer close(h.done)
		h.err = group.Wait()
	}()
	return h, nil
}

// open connects to the server, and opens the sockets for other commands.
func (h *host) open(token string) (conn *events.Conn, c *control, err error) {
	cfg := &h.cfg
	cfg.node.Topology.Room = h.server.Room() / 10 * 9 // the rest is for the buckets
	if cfg.listen == "" || cfg.tls.cert != "" {       // the commands of this user need no certificate
		if h.bridge, err = openBridge(cfg.node.RunFolder, h.server); err != nil {
			return nil, nil, err
		}
	}
	if c, err = openControl(cfg.node.RunFolder); err != nil {
		return nil, nil, err
	}
	if cfg.reads {
		h.yields = make(chan *yieldRequest)
		c.yields = h.yields
	} else {
		c.reload = cfg.reload.ask
	}
	conn, err = events.Connect(events.Options{InProcess: h.server, Token: token, Name: "worker " + cfg.node.Worker, Cell: cfg.cell})
	return conn, c, err
}

// work runs the worker until ctx ends, and calls ready when the worker is; see [node.Node.Run].
func (h *host) work(ctx context.Context, conn *events.Conn, ready func()) error {
	if !h.cfg.reads {
		return node.New(h.cfg.node, conn).Run(ctx, ready)
	}
	if err := conn.Ensure(ctx, h.cfg.node.Topology); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return nil
}

// announce writes the address that other commands of this user connect to.
func (h *host) announce() error {
	a := address{URL: h.server.URL(), PID: os.Getpid(), Reads: h.cfg.reads}
	if h.bridge != nil {
		a.Socket = h.bridge.path
	}
	return h.cfg.folder.writeAddress(a)
}

// waitReady waits until the worker is ready, or has failed to start.
func (h *host) waitReady(ctx context.Context) error {
	select {
	case <-h.ready:
		return nil
	case <-h.workerDone:
		return errors.Join(h.workerErr, schemas.Errorf(schemas.CodeUnavailable, "the worker ended before it was ready"))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stopWorker ends the worker, which records the ends of its processes. Its callers can still read them.
func (h *host) stopWorker() {
	h.cfg.folder.removeAddress()
	h.cancel()
	<-h.workerDone
}

// stop ends the worker, then the server, and releases the folder. Errors: why the worker or the server ended before.
func (h *host) stop() error {
	h.stopWorker()
	h.endServer()
	<-h.done
	h.lock.release()
	return h.err
}

// bridge connects other commands of this user to the server in this process, through unix sockets that only this user can open. Guests
// whose commands need the worker in this process have a socket of their own: it waits for them.
type bridge struct {
	path   string
	guests [2]*guests // whose commands need the worker, and that only read
	server *embedded.Server
}

// guests are the connections through one socket.
type guests struct {
	listener *net.UnixListener

	mu     sync.Mutex
	count  int
	closed bool
	left   chan struct{} // receives after a guest has left
}

func openBridge(runFolder string, server *embedded.Server) (*bridge, error) {
	b := &bridge{path: filepath.Join(runFolder, "nats.sock"), server: server}
	for i, path := range []string{b.path, b.path + discover.ReadSuffix} {
		l, err := listenUnix(path)
		if err != nil {
			return nil, err
		}
		b.guests[i] = &guests{listener: l, left: make(chan struct{}, 1)}
	}
	return b, nil
}

// run copies between guests and the server until ctx ends.
func (b *bridge) run(ctx context.Context) error {
	var group errgroup.Group
	for _, g := range b.guests {
		group.Go(func() error {
			g.serve(ctx, b.server)
			return nil
		})
	}
	return group.Wait()
}

// waitForWork waits until no guest needs the worker, and admits none from then on. Errors: ctx's.
func (b *bridge) waitForWork(ctx context.Context) error { return b.guests[0].wait(ctx) }

// waitForReads is the same for the guests that only read.
func (b *bridge) waitForReads(ctx context.Context) error { return b.guests[1].wait(ctx) }

func (g *guests) serve(ctx context.Context, server *embedded.Server) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = g.listener.Close() }) // it ends Accept
	defer stop()
	for {
		guest, err := shortage.Accept(g.listener)
		if err != nil {
			return // closed
		}
		conn, err := server.InProcessConn()
		if err != nil {
			_ = guest.Close() // the guest reports it
			continue
		}
		if !g.enter() {
			_ = guest.Close() // the guest connects to the next host, or becomes it
			_ = conn.Close()
			continue
		}
		wg.Go(func() {
			defer g.leave()
			closeBoth := sync.OnceFunc(func() {
				_ = guest.Close() // closing either end ends both copies
				_ = conn.Close()
			})
			defer context.AfterFunc(ctx, closeBoth)()
			var copies sync.WaitGroup
			copies.Go(func() {
				defer closeBoth()
				_, _ = io.Copy(conn, guest)
			})
			copies.Go(func() {
				defer closeBoth()
				_, _ = io.Copy(guest, conn)
			})
			copies.Wait()
		})
	}
}

// enter admits a guest, unless wait has returned: this process is about to end, and the guest's command would end with it.
func (g *guests) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.count++
	return true
}

func (g *guests) leave() {
	g.mu.Lock()
	g.count--
	g.mu.Unlock()
	select {
	case g.left <- struct{}{}:
	default: // one is waiting already
	}
}

// wait waits until no guest is left, and admits none from then on. Errors: ctx's.
func (g *guests) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		g.closed = g.count == 0
		closed := g.closed
		g.mu.Unlock()
		if closed {
			return nil
		}
		select {
		case <-g.left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
