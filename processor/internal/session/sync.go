package session

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// syncing is a sync of a workspace that is under way. The same request, sent again meanwhile, gets the same answer.
type syncing struct {
	req   schemas.SyncRequest
	done  chan struct{} // closed with reply set
	reply schemas.SessionReply
}

// sync stores, restores, lists or compares versions of the thread's workspace, or joins the same request. Another one is a conflict meanwhile.
func (ss *Sessions) sync(ctx context.Context, t *Thread, req *schemas.SyncRequest) schemas.SessionReply {
	t.mu.Lock()
	current := t.syncing
	if current == nil {
		t.syncing = &syncing{req: *req, done: make(chan struct{})}
	}
	mine := t.syncing
	t.mu.Unlock()
	switch {
	case current == nil:
		mine.reply = ss.runSync(t, req)
		t.mu.Lock()
		t.syncing = nil
		t.mu.Unlock()
		close(mine.done)
	case current.req != *req:
		return schemas.SessionReply{Error: schemas.Errorf(schemas.CodeConflict,
			"thread %s: %s of the workspace is under way: try again when it has ended", t.ID, current.req.Op)}
	default:
		select {
		case <-mine.done:
		case <-ctx.Done():
			return schemas.SessionReply{Error: schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker)}
		}
	}
	return mine.reply
}

// runSync does what the request asks for. The sandbox is started first: its cold start pulls the workspace.
func (ss *Sessions) runSync(t *Thread, req *schemas.SyncRequest) schemas.SessionReply {
	refused := func(err error) schemas.SessionReply { return schemas.SessionReply{Error: schemas.AsError(err)} }
	if ss.cfg.Hooks == nil || t.Template.Sync == nil {
		return refused(schemas.Errorf(schemas.CodeInvalidArgument, "template %q of thread %s stores no workspaces: set its sync.location", t.Template.Name, t.ID))
	}
	ctx, cancel := context.WithTimeout(ss.background.Context(), ss.cfg.Timeouts.Hooks)
	defer cancel()
	if _, err := ss.Sandbox(ctx, t, schemas.Origin{}); err != nil {
		return refused(StartError(err))
	}
	s := ss.Info(t)
	data := schemas.HookData{Conversation: schemas.Conversation{
		Tenant: t.Tenant, Thread: t.ID, Template: s.Template, User: s.User, Session: s.ID, Epoch: s.Epoch, From: s.From,
	}}
	begun := time.Now()
	reply, err := ss.cfg.Hooks.Sync(ctx, t.Template, data, s.Workspace, req)
	t.touch()
	t.log(ss.publisher.Log.Info().Err(err)).Str("op", string(req.Op)).Dur("duration", time.Since(begun)).Msg("workspace_synced")
	if err != nil {
		reply.Error = schemas.AsError(err)
	}
	current := ss.Info(t)
	reply.Session = &current
	return reply
}
