package processor_test

import (
	"context"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// preparing configures a worker with a template whose cold start makes files, and with these hooks.
func preparing(h *hooks) func(*processor.Config) {
	return talking(&schemas.Template{Name: "default", Hooks: map[schemas.Phase][]schemas.HookSpec{
		schemas.PhaseColdStart: {{Command: []string{"touch", "half"}}, {Command: []string{"touch", "whole"}}},
	}}, h)
}

// Promises 9: a worker that is killed in the middle of a cold start leaves a sandbox that no command uses. The first command
// after the restart finds a whole cold start.
func TestCutColdStartIsDoneAgain(t *testing.T) {
	c := newCell(t)
	began, killed := make(chan struct{}), make(chan struct{})
	defer close(killed)
	dead := c.worker("w1", hasty, preparing(&hooks{do: func(ctx context.Context, _ schemas.HookData, _ string, exec hookExec) ([]string, error) {
		err := exec(ctx, []string{"touch", "half"}, nil)
		close(began)
		<-killed
		return nil, err
	}}))
	c.send(command("k1", sh(":")))
	<-began
	dead.crash()

	h := &hooks{do: func(ctx context.Context, data schemas.HookData, _ string, exec hookExec) ([]string, error) {
		if data.Phase != schemas.PhaseColdStart {
			return nil, nil
		}
		return nil, exec(ctx, []string{"touch", "whole"}, nil)
	}}
	w := dead.again(preparing(h))
	wantFields(t, c.exec(command("k2", sh("test -e half -a -e whole"))), schemas.Result{Success: true})
	equal(t, "cold starts", len(h.of(schemas.PhaseColdStart)), 1)
	equal(t, "new sandboxes", len(w.provider.sandboxes()), 1)
}

// Promises 9: a sandbox whose cold start has completed goes on, with what runs in it and without another cold start.
func TestCompletedColdStartIsNotDoneAgain(t *testing.T) {
	c := newCell(t)
	dead := c.worker("w1", hasty, preparing(&hooks{}))
	call := c.start(command("k1", sh("echo one; until [ -e go ]; do sleep 0.02; done")), "one")
	dead.crash()

	h := &hooks{}
	w := dead.again(preparing(h))
	c.file("go")
	wantFields(t, c.end(call), schemas.Result{Success: true})
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
	equal(t, "cold starts", len(h.of(schemas.PhaseColdStart)), 0)
	equal(t, "new sandboxes", len(w.provider.sandboxes()), 0)
}
