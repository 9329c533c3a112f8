package hooks

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// Versions is a Workspace that keeps versions.
type Versions interface {
	// Restore brings call.Dir, or one path of it, back to a version: its id, or a time. What is there is pushed first. Without a path the version
	// becomes the newest. Errors: those of Workspace.Push, not_found.
	Restore(ctx context.Context, call *Call, at, path string) (*schemas.SyncReport, error)
	// Versions lists the versions, the newest first. Errors: unavailable.
	Versions(ctx context.Context, call *Call) ([]schemas.WorkspaceVersion, error)
	// Diff compares call.Dir with the current version, or its file at path with the version at. Errors: not_found, unavailable.
	Diff(ctx context.Context, call *Call, at, path string) (*schemas.WorkspaceDiff, error)
}

// Sync stores, restores, lists or compares versions of the workspace in dir, on request. Of data, the conversation is used. The reply has what was done, also
// with an error. Errors: invalid_argument for a template without sync, unavailable for a worker that keeps no versions, those of the Workspace.
func (c *Chains) Sync(ctx context.Context, t *schemas.Template, data schemas.HookData, dir string,
	req *schemas.SyncRequest) (reply schemas.SessionReply, err error) {
	if t.Sync == nil {
		return reply, schemas.Errorf(schemas.CodeInvalidArgument, "template %s stores no workspaces: set its sync.location", t.Name)
	}
	call := &Call{HookData: data, Template: t, Dir: dir}
	versions, ok := c.cfg.Workspace.(Versions)
	if !ok {
		return reply, schemas.Errorf(schemas.CodeUnavailable, "worker %s keeps no versions of workspaces", c.cfg.Worker)
	}
	switch req.Op {
	case schemas.SyncPush:
		reply.Sync, err = pushWorkspace{c}.push(ctx, call)
	case schemas.SyncRestore:
		reply.Sync, err = versions.Restore(ctx, call, req.At, req.Path)
		c.recordSync(ctx, schemas.TypeSyncPulled, call, reply.Sync, err)
		if err == nil && req.Path == "" && reply.Sync != nil && reply.Sync.Version != "" {
			err = c.changeSession(ctx, call, func(s *schemas.Session) { s.Version = reply.Sync.Version })
		}
	case schemas.SyncVersions:
		reply.Versions, err = versions.Versions(ctx, call)
		reply.Versions = reply.Versions[:min(len(reply.Versions), schemas.MaxVersions)]
	case schemas.SyncDiff:
		reply.Diff, err = versions.Diff(ctx, call, req.At, req.Path)
	default:
		err = schemas.Errorf(schemas.CodeInvalidArgument, "unknown operation %q: one of %v", req.Op, schemas.SyncOps())
	}
	return reply, err
}

// push stores the workspace, and notes its version in the session.
func (h pushWorkspace) push(ctx context.Context, call *Call) (*schemas.SyncReport, error) {
	report, err := h.chains.cfg.Workspace.Push(ctx, call)
	h.chains.recordSync(ctx, schemas.TypeSyncPushed, call, report, err)
	if err == nil && report != nil && report.Version != "" {
		err = h.chains.changeSession(ctx, call, func(s *schemas.Session) { s.Version = report.Version })
		if errors.Is(err, schemas.ErrSessionExpired) {
			err = nil // it has ended since: the push was owed
		}
	}
	if err == nil {
		call.outcome.note(func(o *schemas.HookOutcome) { o.Pushed = true })
	}
	return report, err
}
