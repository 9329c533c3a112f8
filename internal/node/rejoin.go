package node

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/internal/shortage"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// minRejoinWait and maxRejoinWait are the waits after an incarnation that failed.
	minRejoinWait = 250 * time.Millisecond
	maxRejoinWait = time.Second
	// farewellTimeout bounds a request at the end of a shutdown: NATS is away when it does not answer.
	farewellTimeout = time.Second
	defaultGrace    = 10 * time.Second
	// waitReportEvery is the shortest time between two reports of what a start waits for.
	waitReportEvery = time.Minute
)

// serve runs one incarnation of the worker after the other until ctx ends, or one fails for another reason than NATS. An incarnation
// that loses its lease for lack of NATS leaves its sandboxes with their processes. The next one reattaches them when NATS is back, as a
// restarted worker does.
func (n *Node) serve(ctx context.Context, providers map[string]sandbox.Provider, ready func()) error {
	defer n.boundShutdown(ctx)()
	for wait := minRejoinWait; ; wait = min(2*wait, maxRejoinWait) {
		err := n.incarnation(ctx, ctx, providers, func() {
			if n.joined {
				n.cfg.Log.Info().Msg("worker rejoined")
			}
			n.joined, wait = true, minRejoinWait
			ready()
		})
		if !errors.Is(err, schemas.ErrLost) && !errors.Is(err, errStopped) && !n.passes(err) {
			if ctx.Err() != nil && n.conn.Closed() {
				return nil // boundShutdown has logged it
			}
			return err
		}
		if ctx.Err() == nil {
			pause := wait
			if errors.Is(err, schemas.ErrLost) {
				pause = 0
				n.cfg.Log.Warn().Err(err).Msg("lease lost: restarting the worker when NATS answers; its sandboxes wait")
			} else {
				n.cfg.Log.Warn().Err(err).Msg("worker not started: trying again when NATS answers")
			}
			if err := n.awaitCell(ctx, pause); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if providers, err = n.reopen(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return n.endWithoutLease(ctx, providers)
		}
	}
}

// reopen opens the providers for the next incarnation. It waits for descriptors: sandboxes that cannot be opened for lack of them would be
// lost. Errors: the providers'.
func (n *Node) reopen(ctx context.Context) (map[string]sandbox.Provider, error) {
	for reported := false; ; {
		err := shortage.Check()
		if err == nil || ctx.Err() != nil {
			var providers map[string]sandbox.Provider
			if providers, err = n.providers(); err == nil {
				return providers, nil
			}
			n.closeAll(providers)
			if !shortage.Of(err) || ctx.Err() != nil {
				return nil, err
			}
		}
		if !reported {
			n.cfg.Log.Warn().Err(err).Msg("worker not started: waiting for file descriptors; its sandboxes wait")
			reported = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(maxRejoinWait):
		}
	}
}

// endWithoutLease ends what runs when the worker shuts down and has no lease. If NATS answers, one more incarnation does that, and records
// the ends.
func (n *Node) endWithoutLease(ctx context.Context, providers map[string]sandbox.Provider) (err error) {
	joining, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(n.grace()/2, farewellTimeout))
	defer cancel()
	for n.rejoinsToEnd(joining) {
		if n.incarnation(joining, ctx, providers, func() {}) == nil {
			return nil
		}
		if providers, err = n.providers(); err != nil {
			n.closeAll(providers)
			return err
		}
	}
	n.endAbandoned(context.WithoutCancel(ctx), providers)
	n.closeAll(providers)
	return nil
}

// rejoinsToEnd reports whether NATS answers, so that a worker which shuts down can acquire a lease.
func (n *Node) rejoinsToEnd(ctx context.Context) bool {
	if n.cfg.Temporary || ctx.Err() != nil {
		return false
	}
	flush, cancel := context.WithTimeout(ctx, farewellTimeout)
	defer cancel()
	return n.conn.Flush(flush) == nil && n.awaitCell(ctx, minRejoinWait) == nil
}

func (n *Node) grace() time.Duration { return cmp.Or(n.cfg.Grace, defaultGrace) }

// passes reports whether the worker waits for NATS after an error: also for room in a stream, in which it records what was lost. An error of
// the file system does not pass with NATS, but one for lack of descriptors passes too.
func (n *Node) passes(err error) bool {
	if shortage.Of(err) {
		return !n.conn.Closed()
	}
	_, local := errors.AsType[*fs.PathError](err)
	passing := []error{schemas.ErrUnavailable, schemas.ErrDeadlineExceeded, schemas.ErrLimitExceeded}
	return !local && !n.conn.Closed() && slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) })
}

// awaitCell waits this long, and then until NATS answers and has the streams of the cell. Errors: ctx's, and those that do not pass.
func (n *Node) awaitCell(ctx context.Context, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
	}
	return n.ensure(ctx)
}

// ensure creates the streams of the cell, and waits for NATS. Errors: ctx's, and those that do not pass.
func (n *Node) ensure(ctx context.Context) error {
	if err := n.ensureStreams(ctx); err != nil {
		return err
	}
	if t := n.conn.Worker().Topology(); n.cfg.Topology.Room == 0 && t.StoreBytes() < n.cfg.Topology.StoreBytes() {
		n.cfg.Log.Warn().Int64("command_bytes", t.CommandBytes).Int64("event_bytes", t.EventBytes).Int64("log_bytes", t.LogBytes).
			Int64("message_bytes", t.MessageBytes).Int64("dead_letter_bytes", t.DeadBytes).
			Msg("streams are smaller than by default: JetStream has no room for more; set sizes by --event-bytes, --log-bytes and the like")
	}
	return n.ensureSealed(ctx)
}

// ensureSealed waits for NATS as long as that helps.
func (n *Node) ensureSealed(ctx context.Context) error {
	if n.cfg.Temporary {
		return nil // it is alone, and what waits is for the next worker
	}
	for {
		err := n.conn.Worker().Sealing.Ensure(ctx, n.cfg.SealKeys)
		if err == nil || !n.passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sealRetry):
		}
	}
}

// sealRetry is the time between two tries to read the key of the cell.
const sealRetry = time.Second

func (n *Node) ensureStreams(ctx context.Context) error {
	var reported time.Time
	return n.conn.EnsureLater(ctx, n.cfg.Topology, func(err error) {
		if time.Since(reported) < waitReportEvery {
			return
		}
		reported = time.Now()
		const text = "waiting for NATS: JetStream does not answer, or its cluster is not complete"
		n.cfg.Log.Warn().Err(err).Msg(text)
		if n.cfg.Progress != nil {
			n.cfg.Progress(text + " (" + err.Error() + ")")
		}
	})
}

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
		case <-time.After(n.grace()):
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

// endAbandoned ends the sandboxes that a lost lease left behind, because the worker does not get another one. A temporary one leaves them.
func (n *Node) endAbandoned(ctx context.Context, providers map[string]sandbox.Provider) {
	if n.cfg.Temporary {
		n.leaveAll(providers)
		return
	}
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
			all.Go(func() { _ = sb.Terminate(ctx, n.grace()) }) // its error is ctx's, which does not end
		}
	}
	all.Wait()
}
