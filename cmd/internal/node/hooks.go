package node

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sluice-dev/sluice/cmd/internal/workspace"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// makeHooks wires the hooks of this worker's templates with what they need, and returns the recorder of their events.
func (n *Node) makeHooks() (*events.EventBuffer, error) {
	recorder := n.conn.Worker().NewEventBuffer(func(ev *schemas.Event, err error) {
		n.cfg.Log.Warn().Err(err).Str("type", string(ev.Type)).Str("thread", ev.Thread).Msg("event not stored")
	})
	var err error
	n.hooks, err = hooks.New(hooks.Config{
		Worker: n.cfg.Worker, Record: n.observed(recorder.Record), Log: n.cfg.Log,
		Workspace: workspace.New(workspace.Config{Fence: n.fence}),
		Messages:  n.conn.Worker().Messages, Sessions: sessions{n}, Asker: n.conn.Worker(), Secret: readSecret, Private: n.cfg.PrivateHooks, Hooks: n.cfg.Hooks,
	})
	return recorder, err
}

// observed has events counted that are recorded.
func (n *Node) observed(record func(context.Context, *schemas.Event)) func(context.Context, *schemas.Event) {
	return func(ctx context.Context, ev *schemas.Event) {
		n.observer.Event(ev)
		record(ctx, ev)
	}
}

// runHooks does what hooks need done beside their occasions, until ctx ends; whoever calls the result waits for it.
func (n *Node) runHooks(ctx context.Context, recorder *events.EventBuffer) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	retried, recorded := make(chan struct{}), make(chan struct{})
	// The recorder is the last to end: what the others do at their end is recorded too.
	recordCtx, endRecords := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(retried)
		_ = n.hooks.Retry(ctx) // it ends with ctx alone
	}()
	go func() {
		defer close(recorded)
		_ = recorder.Run(recordCtx) // it ends with its context alone
	}()
	return func() {
		cancel()
		<-retried
		patience, stop := context.WithTimeout(context.WithoutCancel(ctx), stragglerPatience)
		defer stop()
		if err := n.hooks.Close(patience); err != nil {
			n.cfg.Log.Warn().Err(err).Msg("hooks")
		}
		endRecords()
		<-recorded
	}
}

// stragglerPatience is how long a worker that ends waits for hooks that do not heed their deadline.
const stragglerPatience = 5 * time.Second

// fence says whether a session is still this worker's. The word of KV and the lease's own clock count, not what this worker
// remembers: it may have been frozen meanwhile.
func (n *Node) fence(ctx context.Context, c schemas.Conversation) error {
	s, _, err := n.conn.Worker().Sessions.Session(ctx, c.Tenant, c.Thread)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	w := n.worker.Load()
	if err != nil || s.ID != c.Session || w == nil {
		return schemas.Errorf(schemas.CodeLost, "session %s of thread %s is not this worker's any more: its workspace is not pushed from here", c.Session, c.Thread)
	}
	return w.Owns(ctx, c.Tenant, c.Thread, c.Epoch)
}

// sessions changes sessions for hooks, by the worker that owns them.
type sessions struct{ node *Node }

// ChangeSession changes a session.
func (s sessions) ChangeSession(ctx context.Context, c schemas.Conversation, change func(*schemas.Session)) error {
	w := s.node.worker.Load()
	if w == nil {
		return schemas.Errorf(schemas.CodeUnavailable, "the worker has not begun")
	}
	return w.Amend(ctx, c.Tenant, c.Thread, c.Session, change)
}

// readSecret reads what a template names. Its errors tell where it was looked for, never what was found.
func readSecret(ref schemas.SecretRef) (string, error) { return template.Secret(ref, os.Getenv) }
