package session

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// maxSyncs bounds the different syncs of a thread that are under way at a time.
const maxSyncs = 16

// syncing is a sync of a workspace that is under way. The same request, sent again meanwhile, gets the same answer.
type syncing struct {
	done  chan struct{} // closed with reply set
	reply schemas.SessionReply
}

// sync stores, restores, lists or compares versions of the thread's workspace, or joins the same request. One that changes something is a
// conflict while another one does; one that only reads waits for its turn.
func (ss *Sessions) sync(ctx context.Context, t *Thread, req *schemas.SyncRequest) schemas.SessionReply {
	s, mine, err := t.joinSync(req)
	switch {
	case err != nil:
		return schemas.SessionReply{Error: err}
	case mine:
		s.reply = ss.runSync(t, req)
		t.mu.Lock()
		delete(t.syncs, *req)
		t.mu.Unlock()
		close(s.done)
	default:
		select {
		case <-s.done:
		case <-ctx.Done():
			return schemas.SessionReply{Error: schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker)}
		}
	}
	return s.reply
}

// joinSync returns the sync of a request. It is the caller's to run when it is a new one. Errors: conflict.
func (t *Thread) joinSync(req *schemas.SyncRequest) (s *syncing, isNew bool, err *schemas.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.syncs[*req]; s != nil {
		return s, false, nil
	}
	if len(t.syncs) >= maxSyncs {
		return nil, false, schemas.Errorf(schemas.CodeConflict, "thread %s: %d syncs of the workspace are under way: try again when one has ended", t.ID, len(t.syncs))
	}
	for other := range t.syncs {
		if req.Op.Changes() && other.Op.Changes() {
			return nil, false, schemas.Errorf(schemas.CodeConflict, "thread %s: %s of the workspace is under way: try again when it has ended", t.ID, other.Op)
		}
	}
	s = &syncing{done: make(chan struct{})}
	t.syncs[*req] = s
	return s, true, nil
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
