package node

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

var (
	_ processor.Templates = (*template.Store)(nil)
	_ processor.Policy    = (*policy.Policy)(nil)
)

// publishEvery is how long a worker waits with templates that could not be written, until it tries again.
const publishEvery = 5 * time.Second

// keepTemplates writes this worker's templates where callers can read them, and reads the folder anew whenever Reload says so. It
// begins once the worker accepts commands, which nobody should wait for longer than need be, and ends with ctx; whoever calls the
// result waits for it.
func (n *Node) keepTemplates(ctx context.Context, accepts <-chan struct{}) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			return
		case <-accepts:
		}
		retry := time.NewTimer(0)
		defer retry.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-n.cfg.Reload:
				n.reloadTemplates()
			case <-retry.C:
			}
			if err := n.conn.Worker().Roster.SaveTemplates(ctx, n.templates.List()); err != nil && ctx.Err() == nil {
				n.cfg.Log.Warn().Err(err).Msg("templates not published")
				retry.Reset(publishEvery)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// reloadTemplates reads the folder anew. What is wrong with it is logged line by line, and changes nothing.
func (n *Node) reloadTemplates() {
	err := n.templates.Reload()
	problems, ok := errors.AsType[template.Problems](err)
	for _, p := range problems {
		n.cfg.Log.Error().Str("file", p.File).Int("line", p.Line).Str("field", p.Path).Str("reason", p.Text).Msg("template_invalid")
	}
	switch {
	case ok:
		n.cfg.Log.Error().Int("problems", len(problems)).Msg("templates not reloaded: those from before stay")
	case err != nil:
		n.cfg.Log.Error().Err(err).Msg("templates not reloaded: those from before stay")
	default:
		n.cfg.Log.Info().Int("templates", len(n.templates.List())).Msg("templates_reloaded")
	}
}

// secrets are a template's, from this worker's environment and files.
func (*Node) secrets(t *schemas.Template) (map[string]string, error) {
	return template.Secrets(t, os.Getenv)
}

// roster registers the worker with the templates it has.
type roster struct {
	processor.Roster
	templates *template.Store
}

func (r roster) Register(ctx context.Context, w schemas.WorkerInfo) error {
	for _, t := range r.templates.List() {
		w.Templates = append(w.Templates, t.Name)
	}
	return r.Roster.Register(ctx, w)
}
