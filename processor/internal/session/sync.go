package session

import (
	"context"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// maxSyncs bounds the different syncs of a thread that are under way at a time.
const maxSyncs = 16

// syncing is a sync of a workspace that is under way, or waits for the same one before it.
type syncing struct {
	callers map[string]bool // who sends a request again gets the same answer
	done    chan struct{}   // closed with reply set
	reply   schemas.SessionReply
}

// syncTurns are the same requests of several callers.
type syncTurns struct {
	running *syncing
	next    *syncing // for the callers that have come since; nil for none
}

// sync stores, restores, lists or compares versions of the thread's workspace. One that changes something is a conflict while another one
// does; one that only reads waits for its turn. Callers that ask for the same while it is under way share the next one: the one under way
// may have read the files before they changed them.
func (ss *Sessions) sync(ctx context.Context, t *Thread, req *schemas.SyncRequest, caller string) schemas.SessionReply {
	s, after, err := t.joinSync(req, caller)
	switch {
	case err != nil:
		return schemas.SessionReply{Error: err}
	case after != nil:
		<-after // it ends when the worker does
		s.reply = ss.runSync(t, req)
		t.endSync(req, s)
	default:
		select {
		case <-s.done:
		case <-ctx.Done():
			return schemas.SessionReply{Error: schemas.Errorf(schemas.CodeUnavailable, "worker %s is shutting down", ss.publisher.Worker)}
		}
	}
	return s.reply
}

// joinSync returns the sync of a request. It is the caller's to run once after is closed, unless after is nil. Errors: conflict.
func (t *Thread) joinSync(req *schemas.SyncRequest, caller string) (s *syncing, after <-chan struct{}, err *schemas.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s = &syncing{callers: map[string]bool{caller: true}, done: make(chan struct{})}
	if turns := t.syncs[*req]; turns != nil {
		switch {
		case turns.running.callers[caller]:
			return turns.running, nil, nil
		case turns.next != nil:
			turns.next.callers[caller] = true
			return turns.next, nil, nil
		}
		turns.next = s
		return s, turns.running.done, nil
	}
	if len(t.syncs) >= maxSyncs {
		return nil, nil, schemas.Errorf(schemas.CodeConflict, "thread %s: %d syncs of the workspace are under way: try again when one has ended", t.ID, len(t.syncs))
	}
	for other := range t.syncs {
		if req.Op.Changes() && other.Op.Changes() {
			return nil, nil, schemas.Errorf(schemas.CodeConflict, "thread %s: %s of the workspace is under way: try again when it has ended", t.ID, other.Op)
		}
	}
	t.syncs[*req] = &syncTurns{running: s}
	now := make(chan struct{})
	close(now)
	return s, now, nil
}

// endSync answers the callers of a sync that has run, and lets the next one run.
func (t *Thread) endSync(req *schemas.SyncRequest, s *syncing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turns := t.syncs[*req]; turns.next != nil {
		turns.running, turns.next = turns.next, nil
	} else {
		delete(t.syncs, *req)
	}
	close(s.done)
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
		return notStarted(ss, t, err)
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
