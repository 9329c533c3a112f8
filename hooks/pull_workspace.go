package hooks

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// pullWorkspace is the built-in pull-workspace. It is idempotent: what is there already is not fetched again, and what was changed
// here since stays.
type pullWorkspace struct{ chains *Chains }

var _ ColdStart = pullWorkspace{}

// OnColdStart pulls.
func (h pullWorkspace) OnColdStart(ctx context.Context, call *Call) error {
	report, err := h.chains.cfg.Workspace.Pull(ctx, call)
	h.chains.recordSync(ctx, schemas.TypeSyncPulled, call, report, err)
	return err
}

// recordSync tells of a pull or a push: its conflicts, whether settled or not, and what it did.
func (c *Chains) recordSync(ctx context.Context, typ schemas.EventType, call *Call, report *schemas.SyncReport, err error) {
	if report == nil {
		return
	}
	if len(report.Conflicts) > 0 {
		c.record(ctx, schemas.TypeSyncConflict, call, report)
	}
	if err == nil {
		c.record(ctx, typ, call, report)
	}
}
