package hooks

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// pushWorkspace is the built-in push-workspace. It is idempotent: a workspace that has not changed makes no version.
type pushWorkspace struct{ chains *Chains }

var (
	_ StreamFinish = pushWorkspace{}
	_ Terminate    = pushWorkspace{}
	_ Repeater     = pushWorkspace{}
)

// OnStreamFinish pushes.
func (h pushWorkspace) OnStreamFinish(ctx context.Context, call *Call) error {
	return h.push(ctx, call)
}

// OnTerminate pushes.
func (h pushWorkspace) OnTerminate(ctx context.Context, call *Call) error { return h.push(ctx, call) }

func (h pushWorkspace) push(ctx context.Context, call *Call) error {
	report, err := h.chains.cfg.Workspace.Push(ctx, call)
	h.chains.recordSync(ctx, schemas.TypeSyncPushed, call, report, err)
	if err != nil || report == nil || report.Version == "" || h.chains.cfg.Sessions == nil {
		return err
	}
	return h.chains.cfg.Sessions.ChangeSession(ctx, call.Conversation, func(s *schemas.Session) { s.Version = report.Version })
}

// Again says yes to all but what no waiting mends: a session that has gone elsewhere or ended, a request that is wrong, paths that
// changed on both sides. The next occasion of the thread tries those too.
func (h pushWorkspace) Again(err error) bool {
	for _, final := range []error{
		schemas.ErrLost, schemas.ErrSessionExpired, schemas.ErrNotFound, schemas.ErrInvalidArgument, schemas.ErrConflict, schemas.ErrTooLarge,
	} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}
