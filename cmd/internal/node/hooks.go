package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/cmd/internal/workspace"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// maxDropLines is the most log lines a minute about events that are dropped: an outage may drop many.
const maxDropLines = 10

// makeHooks wires the hooks of this worker's templates, and returns the buffer of their events.
func (n *Node) makeHooks() (*events.EventBuffer, error) {
	drops := n.cfg.Log.Sample(&zerolog.BurstSampler{Burst: maxDropLines, Period: time.Minute})
	var dropped atomic.Uint64
	buffer := n.conn.Worker().NewEventBuffer(func(ev *schemas.Event, err error) {
		n.observer.Dropped(ev)
		drops.Warn().Err(err).Str("type", string(ev.Type)).Str("thread", ev.Thread).Uint64("total", dropped.Add(1)).Msg("event dropped")
	})
	record := func(ctx context.Context, ev *schemas.Event) {
		n.observer.Event(ev)
		buffer.Record(ctx, ev)
	}
	secret := func(ref schemas.SecretRef) (string, error) { return template.Secret(ref, n.cfg.Getenv) }
	var err error
	n.hooks, err = hooks.New(hooks.Config{
		Worker: n.cfg.Worker, Record: record, Log: n.cfg.Log,
		Workspace: workspace.New(workspace.Config{Fence: n.fence}),
		Messages:  n.conn.Worker().Messages, Sessions: sessions{n}, Asker: n.conn.Worker(), Secret: secret, Private: n.cfg.PrivateHooks, Hooks: n.cfg.Hooks,
	})
	return buffer, err
}

// runHooks retries failed hooks and records events until ctx ends. wait ends both and waits for them.
func (n *Node) runHooks(ctx context.Context, buffer *events.EventBuffer) (wait func()) {
	// The buffer ends last: it also records the events of the shutdown. Both end with their context only.
	endRecords := background(context.WithoutCancel(ctx), func(ctx context.Context) { _ = buffer.Run(ctx) })
	endRetries := background(ctx, func(ctx context.Context) { _ = n.hooks.Retry(ctx) })
	return func() {
		endRetries()
		closeCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), hookCloseTimeout)
		defer stop()
		if err := n.hooks.Close(closeCtx); err != nil {
			n.cfg.Log.Warn().Err(err).Msg("hooks still running at shutdown")
		}
		endRecords()
	}
}

// hookCloseTimeout bounds the wait, at shutdown, for hooks that ignore their deadline.
const hookCloseTimeout = 5 * time.Second

// fence reports whether this worker still owns a session. It reads KV and the lease's clock, not this worker's memory: the worker
// may have been frozen in between. Errors: lost.
func (n *Node) fence(ctx context.Context, c schemas.Conversation) error {
	s, _, err := n.conn.Worker().Sessions.Session(ctx, c.Tenant, c.Thread)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	w := n.worker.Load()
	if err != nil || s.ID != c.Session || w == nil {
		return schemas.Errorf(schemas.CodeLost, "this worker no longer owns session %s of thread %s: its workspace is not pushed", c.Session, c.Thread)
	}
	return w.Owns(ctx, c.Tenant, c.Thread, c.Epoch)
}

// sessions lets hooks change sessions through the worker that owns them.
type sessions struct{ node *Node }

// ChangeSession applies change to a session. Errors: unavailable before the worker has started.
func (s sessions) ChangeSession(ctx context.Context, c schemas.Conversation, change func(*schemas.Session)) error {
	w := s.node.worker.Load()
	if w == nil {
		return schemas.Errorf(schemas.CodeUnavailable, "session %s cannot be changed: the worker has not started yet", c.Session)
	}
	return w.Amend(ctx, c.Tenant, c.Thread, c.Session, change)
}
