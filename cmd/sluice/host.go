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

// hostConfig says what to host on a data folder whose lock is held.
type hostConfig struct {
	folder     *folder
	listen     string // empty: a unix socket for other commands of this user
	durability embedded.Durability
	node       node.Config
	cell       string
}

// host is a NATS server and a worker in this process, on a data folder.
type host struct {
	cfg    hostConfig
	lock   *held
	server *embedded.Server
	bridge *bridge
	cancel context.CancelFunc
	ready  chan struct{}
	done   chan struct{} // closed when all has ended, err being why
	err    error
}

// startHost starts everything and returns when the server takes connections; the worker may take a moment longer (ready). The host
// keeps the lock until stop returns. Errors: those of the server, and of the folder.
func startHost(ctx context.Context, lock *held, cfg hostConfig) (*host, error) {
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
	cfg.node.Topology = cfg.node.Topology.Fit(server.StoreBytes() / 10 * 9) // the buckets need room too
	h := &host{cfg: cfg, lock: lock, server: server, ready: make(chan struct{}), done: make(chan struct{})}
	if cfg.listen == "" {
		if h.bridge, err = openBridge(cfg.node.RunFolder, server); err != nil {
			conn.Close()
			server.Close()
			return nil, err
		}
	}
	// What is hosted ends by stop alone: the commands under way decide when.
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	group, workCtx := errgroup.WithContext(ctx)
	serverCtx, endServer := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer endServer() // the server outlives the worker, which records its last ends there
		defer conn.Close()
		return node.New(cfg.node, conn).Run(workCtx, sync.OnceFunc(func() { close(h.ready) }))
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

// announce tells other commands of this user how to reach the host.
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
		return errors.Join(h.err, schemas.Errorf(schemas.CodeUnavailable, "the worker ended before it began"))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the worker, then the server, and gives the folder back.
func (h *host) stop() error {
	h.cfg.folder.removeAddress()
	h.cancel()
	<-h.done
	h.lock.release()
	return h.err
}

// bridge lets other commands of this user reach the server in this process, by a unix socket only they can open.
type bridge struct {
	path     string
	listener *net.UnixListener
	server   *embedded.Server

	mu     sync.Mutex
	guests int
	closed bool
	left   chan struct{} // gets a word whenever a guest has left
}

func openBridge(runFolder string, server *embedded.Server) (*bridge, error) {
	path := filepath.Join(runFolder, "nats.sock")
	// The lock is held: whoever made this socket is gone.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "remove a stale socket: %w", err)
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
			_ = guest.Close() // the guest sees it, and says so
			continue
		}
		if !b.enter() {
			_ = guest.Close() // the guest finds another server, or becomes it
			_ = server.Close()
			continue
		}
		wg.Go(func() {
			defer b.leave()
			closeBoth := sync.OnceFunc(func() {
				_ = guest.Close() // either end's closing ends both copies
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

// enter lets a guest in, unless the last one was waited for already: its command would end with this process.
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
	default: // a word is waiting already
	}
}

// empty waits until no guest is left, and lets none in from then on. Errors: ctx's.
func (b *bridge) empty(ctx context.Context) error {
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
