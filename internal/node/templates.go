package node

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/allow"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

var (
	_ processor.Templates = (*template.Store)(nil)
	_ processor.Policy    = (*policy.Policy)(nil)
	_ processor.Lists     = (*allow.Lists)(nil)
)

// publishRetry is the wait before templates that could not be published are published again.
const publishRetry = 5 * time.Second

// publishTemplates writes this worker's templates to KV for callers to read, and reads the folder again at each Reload. It starts
// once the worker accepts commands, and runs until ctx ends. It calls ready after the first try, so that a caller who knows
// that the worker is up finds all of them. An agent's template that no worker has any more is deleted there. wait ends it and waits for it.
func (n *Node) publishTemplates(ctx context.Context, accepts <-chan struct{}, ready func()) (wait func()) {
	return background(ctx, func(ctx context.Context) {
		select {
		case <-ctx.Done():
			return
		case <-accepts:
		}
		retry := time.NewTimer(0)
		defer retry.Stop()
		for {
			done := func() {}
			select {
			case <-ctx.Done():
				return
			case reply := <-n.cfg.Reload:
				err := n.reloadTemplates()
				done = func() { reply(len(n.templates.List()), err) }
			case <-retry.C:
			}
			roster := n.conn.Worker().Roster
			err := errors.Join(roster.SaveTemplates(ctx, n.templates.List()), roster.DeleteTemplates(ctx, n.templates.Off()))
			if err != nil && ctx.Err() == nil {
				n.cfg.Log.Warn().Err(err).Msg("templates not published")
				retry.Reset(publishRetry)
			}
			done()
			ready()
		}
	})
}

// reloadTemplates reads the folder and the allow-lists again. Each problem is logged with its line; with any problem the templates and the
// lists stay as they were, and it is the error.
func (n *Node) reloadTemplates() error {
	use, err := n.allow.Read()
	if err == nil {
		err = n.templates.Reload()
	}
	if err == nil {
		use()
	}
	problems, ok := errors.AsType[template.Problems](err)
	for _, p := range problems {
		n.cfg.Log.Error().Str("file", p.File).Int("line", p.Line).Str("field", p.Path).Str("reason", p.Text).Msg("template_invalid")
	}
	switch {
	case ok:
		n.cfg.Log.Error().Int("problems", len(problems)).Msg("templates not reloaded: the ones in use stay")
	case err != nil:
		n.cfg.Log.Error().Err(err).Msg("templates not reloaded: the ones in use stay")
	default:
		n.cfg.Log.Info().Int("templates", len(n.templates.List())).Msg("templates_reloaded")
	}
	return err
}

// roster adds the names of the templates to the worker's registration.
type roster struct {
	processor.Roster
	node *Node
}

// LeaseAlive declares no worker dead that may be about to return.
func (r roster) LeaseAlive(ctx context.Context, worker string) (bool, error) {
	alive, err := r.Roster.LeaseAlive(ctx, worker)
	return alive || (err == nil && r.node.conn.OthersMayReturn()), err
}

func (r roster) Register(ctx context.Context, w schemas.WorkerInfo) error {
	for _, t := range r.node.templates.List() {
		w.Templates = append(w.Templates, t.Name)
	}
	return r.Roster.Register(ctx, w)
}
