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

	"github.com/sluice-dev/sluice/cmd/internal/node"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/schemas"
)

// hostConfig configures a host. The lock of its folder is held.
type hostConfig struct {
	folder     *dataFolder
	listen     string // empty: a unix socket, for other commands of this user
	durability embedded.Durability
	node       node.Config
	cell       string
}

// host is a NATS server and a worker in this process, on a data folder.
type host struct {
	cfg    hostConfig
	lock   *folderLock
	server *embedded.Server
	bridge *bridge // nil when the server listens on an address
	cancel context.CancelFunc
	ready  chan struct{}
	done   chan struct{} // closed when the host has ended, with err set
	err    error
}

// startHost starts the server and the worker. It returns when the server accepts connections; waitReady waits for the worker. The
// host keeps the lock until stop returns. Errors: those of the server and of the folder.
func startHost(ctx context.Context, lock *folderLock, cfg hostConfig) (*host, error) {
	token := ""
	var err error
	if cfg.listen != "" {
		if token, err = cfg.folder.token(); err != nil {
			return nil, err
		}
	}
	server, err := embedded.Start(embedded.Config{Dir: cfg.folder.join("nats"), Listen: cfg.listen, Token: token, Durability: cfg.durability})
	if err != nil {
		return nil, err
	}
	conn, err := events.Connect(events.Options{InProcess: server, Token: token, Name: "worker " + cfg.node.Worker, Cell: cfg.cell})
	if err != nil {
		server.Close()
		return nil, err
	}
	cfg.node.Topology = cfg.node.Topology.Fit(server.StoreBytes() / 10 * 9) // the rest is for the buckets
	h := &host{cfg: cfg, lock: lock, server: server, ready: make(chan struct{}), done: make(chan struct{})}
	if cfg.listen == "" {
		if h.bridge, err = openBridge(cfg.node.RunFolder, server); err != nil {
			conn.Close()
			server.Close()
			return nil, err
		}
	}
	// Only stop ends the host: commands that still run decide when.
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	group, workCtx := errgroup.WithContext(ctx)
	serverCtx, endServer := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer endServer() // after the worker, which records the ends of its processes
		defer conn.Close()
		return ignoreCanceled(node.New(cfg.node, conn).Run(workCtx, sync.OnceFunc(func() { close(h.ready) })))
	})
	group.Go(func() error { return server.Run(serverCtx) })
	if h.bridge != nil {
		group.Go(func() error { return h.bridge.run(serverCtx) })
	}
	go func() {
		defer close(h.done)
		h.err = group.Wait()
	}()
	return h, nil
}

// announce writes the address that other commands of this user connect to.
func (h *host) announce() error {
	a := address{URL: h.server.URL(), PID: os.Getpid()}
	if h.bridge != nil {
		a.Socket = h.bridge.path
	}
	return h.cfg.folder.writeAddress(a)
}

// waitReady waits until the worker accepts commands, or has failed to start.
func (h *host) waitReady(ctx context.Context) error {
	select {
	case <-h.ready:
		return nil
	case <-h.done:
		return errors.Join(h.err, schemas.Errorf(schemas.CodeUnavailable, "the worker ended before it was ready"))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the worker, then the server, and releases the folder.
func (h *host) stop() error {
	h.cfg.folder.removeAddress()
	h.cancel()
	<-h.done
	h.lock.release()
	return h.err
}

// bridge connects other commands of this user to the server in this process, through a unix socket that only this user can open.
type bridge struct {
	path     string
	listener *net.UnixListener
	server   *embedded.Server

	mu     sync.Mutex
	guests int
	closed bool
	left   chan struct{} // receives after a guest has left
}

func openBridge(runFolder string, server *embedded.Server) (*bridge, error) {
	path := filepath.Join(runFolder, "nats.sock")
	// The lock is held: the process that made this socket has ended.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "remove the socket of an earlier sluice: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "listen for other commands: %w", err)
	}
	return &bridge{path: path, listener: l, server: server, left: make(chan struct{}, 1)}, nil
}

// run copies between guests and the server until ctx ends.
func (b *bridge) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = b.listener.Close() }) // it ends Accept
	defer stop()
	for {
		guest, err := b.listener.Accept()
		if err != nil {
			return nil // closed
		}
		server, err := b.server.InProcessConn()
		if err != nil {
			_ = guest.Close() // the guest reports it
			continue
		}
		if !b.enter() {
			_ = guest.Close() // the guest connects to the next host, or becomes it
			_ = server.Close()
			continue
		}
		wg.Go(func() {
			defer b.leave()
			closeBoth := sync.OnceFunc(func() {
				_ = guest.Close() // closing either end ends both copies
				_ = server.Close()
			})
			defer context.AfterFunc(ctx, closeBoth)()
			var copies sync.WaitGroup
			copies.Go(func() {
				defer closeBoth()
				_, _ = io.Copy(server, guest)
			})
			copies.Go(func() {
				defer closeBoth()
				_, _ = io.Copy(guest, server)
			})
			copies.Wait()
		})
	}
}

// enter admits a guest, unless wait has returned: this process is about to end, and the guest's command would end with it.
func (b *bridge) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.guests++
	return true
}

func (b *bridge) leave() {
	b.mu.Lock()
	b.guests--
	b.mu.Unlock()
	select {
	case b.left <- struct{}{}:
	default: // one is waiting already
	}
}

// wait waits until no guest is left, and admits none from then on. Errors: ctx's.
func (b *bridge) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		b.closed = b.guests == 0
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return nil
		}
		select {
		case <-b.left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
