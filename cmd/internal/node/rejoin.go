package node

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Waits of a worker while NATS is away.
const (
	minRejoinWait = 250 * time.Millisecond
	maxRejoinWait = time.Second
	// minPatience is the shortest time that others get to rejoin.
	minPatience = 10 * time.Second
	// farewellTimeout bounds a request at the end of a shutdown: NATS is away when it does not answer.
	farewellTimeout = time.Second
	defaultGrace    = 10 * time.Second
)

// serve runs one incarnation of the worker after the other until ctx ends, or one fails for another reason than NATS. An incarnation
// that loses its lease for lack of NATS leaves its sandboxes with their processes. The next one reattaches them when NATS is back, as a
// restarted worker does.
func (n *Node) serve(ctx context.Context, providers map[string]sandbox.Provider, ready func()) error {
	defer n.boundShutdown(ctx)()
	for {
		err := n.incarnation(ctx, providers, func() {
			if n.joined {
				n.cfg.Log.Info().Msg("worker rejoined")
			}
			n.joined = true
			ready()
		})
		if !errors.Is(err, schemas.ErrLost) && !(n.joined && n.passes(err)) {
			if ctx.Err() != nil && n.conn.Closed() {
				return nil // boundShutdown has logged it
			}
			return err
		}
		if ctx.Err() == nil {
			n.cfg.Log.Warn().Err(err).Msg("lease lost: restarting the worker when NATS answers; its sandboxes wait")
			if err := n.awaitCell(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if providers, err = n.providers(); err != nil {
			n.closeAll(providers)
			return err
		}
		if ctx.Err() != nil {
			n.endAbandoned(context.WithoutCancel(ctx), providers)
			n.closeAll(providers)
			return nil
		}
		n.patientUntil.Store(time.Now().Add(max(n.conn.LeaseTTL(), minPatience)).UnixNano())
	}
}

// passes reports whether an error may be gone when NATS is back.
func (n *Node) passes(err error) bool {
	return (errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded)) && !n.conn.Closed()
}

// awaitCell waits until NATS answers and has the streams of the cell. Errors: ctx's, and those that do not pass.
func (n *Node) awaitCell(ctx context.Context) error {
	for wait := minRejoinWait; ; wait = min(2*wait, maxRejoinWait) {
		err := n.conn.Ensure(ctx, n.cfg.Topology)
		if !n.passes(err) {
			return err
		}
		n.cfg.Log.Debug().Err(err).Msg("NATS does not answer yet")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// patient reports whether this worker has been away from NATS so shortly before that others may have been too: the lease of a worker
// that has not returned yet says nothing about it.
func (n *Node) patient() bool { return time.Now().UnixNano() < n.patientUntil.Load() }

// boundShutdown keeps a shutdown from waiting for NATS longer than its grace. stop ends that.
func (n *Node) boundShutdown(ctx context.Context) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-stopped:
			return
		}
		select {
		case <-time.After(cmp.Or(n.cfg.Grace, defaultGrace)):
		case <-stopped:
			return
		}
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
		defer cancel()
		if n.conn.Flush(flush) == nil {
			return
		}
		n.cfg.Log.Warn().Msg("NATS does not answer at the shutdown: the ends of processes may not be on record")
		if w := n.worker.Load(); w != nil {
			w.Fence()
		}
		n.conn.Close()
	}()
	return sync.OnceFunc(func() {
		close(stopped)
		<-ended
	})
}

// endAbandoned ends the sandboxes that a lost lease left behind, because the worker shuts down before it has another one.
func (n *Node) endAbandoned(ctx context.Context, providers map[string]sandbox.Provider) {
	var all sync.WaitGroup
	for name, p := range providers {
		r, ok := p.(sandbox.Reattacher)
		if !ok {
			continue
		}
		found, err := r.Attach(ctx)
		if err != nil {
			n.cfg.Log.Warn().Err(err).Str("provider", name).Msg("sandboxes not ended: they end by themselves")
		}
		for _, sb := range found {
			all.Go(func() { _ = sb.Terminate(ctx, cmp.Or(n.cfg.Grace, defaultGrace)) }) // its error is ctx's, which does not end
		}
	}
	all.Wait()
}
