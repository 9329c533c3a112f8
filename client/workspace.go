package client

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// Workspaces lists the workspaces on the disks of workers: those of sessions, and those that are kept after one. Workers note the end of
// a session within a minute. Errors: unavailable.
func (c *Client) Workspaces(ctx context.Context) ([]schemas.Workspace, error) {
	kept, err := c.caller.Kept(ctx, c.tenant)
	if err != nil {
		return nil, err
	}
	owed, err := c.caller.Owed(ctx, c.tenant)
	if err != nil {
		return nil, err
	}
	type place struct{ thread, worker string }
	all := make(map[place]*schemas.Workspace)
	at := func(thread, worker string) *schemas.Workspace {
		w := all[place{thread, worker}]
		if w == nil {
			w = &schemas.Workspace{Tenant: c.tenant, Thread: thread, Worker: worker}
			all[place{thread, worker}] = w
		}
		return w
	}
	for i := range kept {
		*at(kept[i].Thread, kept[i].Worker) = kept[i]
	}
	if err := c.caller.Sessions(ctx, c.tenant, func(s *schemas.Session) error {
		if s.Sandbox != "" {
			*at(s.Thread, s.Owner) = schemas.Workspace{
				Tenant: s.Tenant, Thread: s.Thread, Worker: s.Owner, Session: s.ID, Template: s.Template, User: s.User, InUse: true,
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i := range owed {
		at(owed[i].Thread, owed[i].Worker).Owed = true
	}
	out := make([]schemas.Workspace, 0, len(all))
	for _, w := range all {
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b schemas.Workspace) int {
		return cmp.Or(cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Worker, b.Worker))
	})
	return out, nil
}

// RemoveWorkspace removes the workspace of a thread without a session from a worker's disk, from that of each worker that has it for an empty
// worker. unpushed also removes one whose push is owed, and gives that push up. Pushed versions stay. Errors: not_found; conflict when the
// thread has a session, or the push is owed; unavailable when the worker is not running.
func (c *Client) RemoveWorkspace(ctx context.Context, thread, worker string, unpushed bool) error {
	if err := schemas.CheckID("thread", thread); err != nil {
		return err
	}
	workers := []string{worker}
	if worker == "" {
		all, err := c.Workspaces(ctx)
		if err != nil {
			return err
		}
		workers = nil
		for _, w := range all {
			if w.Thread == thread {
				workers = append(workers, w.Worker)
			}
		}
		if len(workers) == 0 {
			return schemas.Errorf(schemas.CodeNotFound, "no worker lists a workspace of thread %s: `sluice workspace list` shows them", thread)
		}
	}
	var failed error
	for _, w := range workers {
		failed = errors.Join(failed, c.caller.RemoveWorkspace(ctx, c.tenant, w, schemas.WorkspaceRemoval{Thread: thread, Unpushed: unpushed}))
	}
	return failed
}
