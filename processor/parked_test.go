package processor_test

import (
	"context"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 14: the hooks at the end of a parked session run in a sandbox, as those of any other session do.
func TestEndOfAParkedSessionRunsItsHooks(t *testing.T) {
	for _, v := range []struct {
		name string
		end  func(c *cell, w *rig)
	}{
		{"stop", func(c *cell, w *rig) {
			done := make(chan schemas.SessionReply, 1)
			w.HandleSession(c.ctx, schemas.SessionControl{Tenant: schemas.DefaultTenant, Thread: "t", Stop: &schemas.StopRequest{}}, func(r schemas.SessionReply) { done <- r })
			if r := <-done; r.Error != nil {
				t.Error(r.Error)
			}
		}},
		{"shutdown", func(_ *cell, w *rig) { w.stop() }},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := newCell(t)
			ended := make(chan error, 4)
			h := &hooks{do: func(ctx context.Context, data schemas.HookData, _ string, exec func(context.Context, []string, []byte) error) ([]string, error) {
				if data.Phase != schemas.PhaseTerminate {
					return nil, nil
				}
				if exec == nil {
					ended <- schemas.Errorf(schemas.CodeUnavailable, "there is no sandbox")
					return nil, nil
				}
				ended <- exec(ctx, []string{"test", "-e", "made"}, nil)
				return nil, nil
			}}
			w := c.worker("w1", soon, with(&schemas.Template{
				Name: "default", Session: schemas.TemplateSession{ParkAfterMS: 20},
				Hooks: map[schemas.Phase][]schemas.HookSpec{schemas.PhaseTerminate: {{Command: []string{"test"}}}},
			}), func(cfg *processor.Config) { cfg.Hooks = h })
			c.exec(command("k", sh("touch made")))
			<-w.provider.sandboxes()[0].Done()
			v.end(c, w)
			c.must(<-ended)
			<-w.provider.sandboxes()[1].Done()
			equal(t, "sandboxes", len(w.provider.sandboxes()), 2)
			equal(t, "cold starts", len(h.of(schemas.PhaseColdStart)), 1)
		})
	}
}
