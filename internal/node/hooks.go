package node

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/workspace"
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
		Workspace: workspace.New(workspace.Config{Fence: n.fence, Template: n.templates.Template}),
		Owed:      n.conn.Worker().Owed, Template: n.templates.Template, Workspaces: n.cfg.Workspaces,
		Messages: n.conn.Worker().Messages, Unsaved: filepath.Join(n.cfg.RunFolder, "unsaved"),
		Sessions: sessions{n}, Asker: n.conn.Worker(), Secret: secret, Private: n.cfg.PrivateHooks, Hooks: n.cfg.Hooks,
		RetryFirst: n.retryFirst,
	})
	return buffer, err
}

// runHooks records events until ctx ends, and retries failed hooks from when the worker accepts commands. wait ends both and waits for
// them.
func (n *Node) runHooks(ctx context.Context, buffer *events.EventBuffer, accepts <-chan struct{}) (wait func()) {
	// The buffer ends last: it also records the events of the shutdown. Both end with their context only.
	endRecords := background(context.WithoutCancel(ctx), func(ctx context.Context) { _ = buffer.Run(ctx) })
	endRetries := background(ctx, func(ctx context.Context) {
		select {
		case <-accepts:
			_ = n.hooks.Retry(ctx)
		case <-ctx.Done():
		}
	})
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

// fence reports whether this worker may push for a session: it still owns the session, or the push is owed and no other worker has a
// session of the thread, which would get the conflicts. It reads KV and the lease's clock, not this worker's memory: the worker may
// have been frozen in between. Errors: lost; unavailable for an owed push that has to wait.
func (n *Node) fence(ctx context.Context, c schemas.Conversation) error {
	s, _, err := n.conn.Worker().Sessions.Session(ctx, c.Tenant, c.Thread)
	exists := err == nil
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	w := n.worker.Load()
	owed := n.hooks.Owed(c.Tenant, c.Thread)
	switch {
	case w == nil, owed == nil && (!exists || s.ID != c.Session):
		return schemas.Errorf(schemas.CodeLost, "this worker no longer owns session %s of thread %s: its workspace is not pushed", c.Session, c.Thread)
	case owed == nil:
		return w.Owns(ctx, c.Tenant, c.Thread, c.Epoch)
	case exists && s.Owner != n.cfg.Worker:
		return schemas.Errorf(schemas.CodeUnavailable, "worker %s has a session of thread %s: the owed push waits for its end", s.Owner, c.Thread)
	}
	return w.CheckLease()
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
