package jail

import (
	"context"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// box is a jail.
type box struct {
	*link.Sandbox
	owner int // whom the workspace's files are given to; 0 where they are shown as the jail's without
}

var _ sandbox.Attached = (*box)(nil)

// Start runs a command; see sandbox.Sandbox.
func (b *box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if b.owner != 0 {
		// The worker may have put files there since.
		if err := workspace.Chown(b.Workspace(), b.owner, b.owner); err != nil {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "give the workspace to the jail's user: %w", err)
		}
	}
	return b.Sandbox.Start(ctx, cmd)
}
