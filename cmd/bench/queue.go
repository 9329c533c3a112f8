package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/node"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	queueRounds  = 3
	queueRuns    = 5000
	queueThreads = 100
)

// stage is a server with a client. Workers come and go.
type stage struct {
	bench        *bench
	dir          string
	worker, call *events.Conn
	client       *client.Client
	workers      int
}

func (b *bench) stage(context.Context) (*stage, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	s, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Durability: b.durability})
	if err != nil {
		return nil, err
	}
	b.atEnd(closing(s.Close))
	g := &stage{bench: b, dir: dir}
	g.worker, g.call, g.client, err = b.connect(events.Options{InProcess: s})
	return g, err
}

// start starts a worker.
func (g *stage) start(ctx context.Context) (stop func() error, err error) {
	g.workers++
	name := fmt.Sprintf("bench-%d", g.workers)
	return membership.Background(ctx, node.New(node.Config{
		Worker: name, Provider: schemas.ProviderLocal, Allowed: []string{schemas.ProviderLocal},
		RunFolder: filepath.Join(g.dir, name), Workspaces: filepath.Join(g.dir, "ws"), Log: zerolog.Nop(),
	}, g.worker).Run)
}

// direct is the commands a second of callers, 16 at a time, over new threads.
func (g *stage) direct(ctx context.Context) (_ float64, err error) {
	stop, err := g.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c := crowd{name: "exec true", n: queueRuns}
	for i := range callers {
		next := i
		c.each = append(c.each, func(ctx context.Context) error {
			thread := fmt.Sprintf("direct-%d-%d", g.workers, next)
			if next += callers; next >= queueThreads {
				next = i
			}
			return sluiceTrue(g.client, thread)(ctx)
		})
	}
	return c.perSecond(ctx)
}

// queued is the commands a second of a worker that starts when all of them are queued, over as many new threads.
func (g *stage) queued(ctx context.Context) (_ float64, err error) {
	feed, err := g.call.Caller().FollowEvents(events.Filter{}, 0)
	if err != nil {
		return 0, err
	}
	defer feed.Close()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := range queueRuns {
		group.Go(func() error {
			x, err := g.client.ExecStream(groupCtx, client.Request{Thread: fmt.Sprintf("queued-%d-%d", g.workers, i%queueThreads), Command: "true"})
			if err != nil {
				return err
			}
			defer x.Close()
			if !x.Queued() {
				return errors.New("the command found a worker, want it queued")
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	begin := time.Now()
	stop, err := g.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for left := queueRuns; left > 0; {
		if err := feed.Next(ctx, func(ev *schemas.Event) error {
			switch ev.Type {
			case schemas.TypeProcessExited:
				left--
			case schemas.TypeProcessRejected, schemas.TypeProcessLost:
				return fmt.Errorf("process %s: %s", ev.Process, ev.Data)
			}
			return nil
		}); err != nil {
			return 0, err
		}
	}
	return queueRuns / time.Since(begin).Seconds(), nil
}

// queueRate is the rate of queued commands over that of commands that are sent directly. Both include the start of the sandboxes; that of
// the queue includes the worker's.
func queueRate(ctx context.Context, b *bench, g *stage) (float64, error) {
	ratio, o, u, err := compare(ctx, queueRounds, g.queued, g.direct)
	if err == nil {
		b.note("queued %.0f/s, direct at %d: %.0f/s", o, callers, u)
	}
	return ratio, err
}
