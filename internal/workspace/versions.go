package workspace

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
)

var _ hooks.Versions = (*Syncer)(nil)

// Restore brings the workspace, or one path of it, back to a version, and pushes what is there first: nothing is lost, and the newest
// version can be restored too.
func (s *Syncer) Restore(ctx context.Context, call *hooks.Call, at, path string) (*schemas.SyncReport, error) {
	if r, err := s.Push(ctx, call); err != nil {
		return r, err
	}
	own := place{call.Template, call.Conversation.Thread, ""}
	return s.run(ctx, call, own, func(op *syncer.Syncer) (*syncer.Report, error) {
		restore := func() (*syncer.Report, error) { return op.Restore(ctx, at) }
		if path != "" {
			restore = func() (*syncer.Report, error) { return op.RestorePath(ctx, at, path) }
		}
		r, err := restore()
		if r.Changed {
			err = errors.Join(err, giveToOwner(ctx, call.Dir))
		}
		return r, err
	}, func(r *syncer.Report) (files int, bytes int64) { return r.Downloaded, r.BytesRead })
}

// Versions lists the versions of the workspace. None have been pushed: an empty list.
func (s *Syncer) Versions(ctx context.Context, call *hooks.Call) (list []schemas.WorkspaceVersion, err error) {
	location, err := s.open(ctx, call.Conversation.Tenant, place{call.Template, call.Conversation.Thread, ""})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, location.Close()) }()
	op, err := syncer.New(syncer.Config{
		Root: call.Dir, Store: objectstore.Retry(location.Store, objectstore.RetryPolicy{}), Remote: location.Name, StoreDir: location.Dir,
	})
	if err != nil {
		return nil, err
	}
	found, err := op.Versions(ctx)
	for _, v := range found {
		list = append(list, schemas.WorkspaceVersion{ID: v.ID, Time: v.Time, Current: v.Current})
	}
	return list, err
}
