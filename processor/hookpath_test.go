package processor_test

import (
	"context"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// mounted is a sandbox whose processes see the workspace at another path than the worker does.
type mounted struct{ sandbox.Sandbox }

func (mounted) Home() string { return "/mounted" }

// Ten minutes 11: hooks and events name the workspace by the path that processes in the sandbox see.
func TestHooksGetTheWorkspaceAsTheSandboxSeesIt(t *testing.T) {
	h := &hooks{}
	c, w := newRig(t, func(cfg *processor.Config) { cfg.Hooks = h })
	create := w.provider.create
	w.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		sb, err := create(ctx, spec)
		return mounted{sb}, err
	}
	wantFields(t, c.exec(command("k", sh(":"))), schemas.Result{Success: true})
	equal(t, "workspace in the hook's data", h.once(t, schemas.PhaseColdStart).Sandbox.Workspace, "/mounted")
	var info schemas.SandboxInfo
	c.must(c.awaitEvent(schemas.TypeSandboxRunning).Decode(&info))
	equal(t, "workspace in sandbox.running", info.Workspace, "/mounted")
}
