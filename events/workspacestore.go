package events

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// WorkspaceStore lists the workspaces that workers keep after a session. Each worker writes the entries of its own.
type WorkspaceStore struct{ conn *Conn }

func keptKey(w *schemas.Workspace) string {
	return keptPrefix + w.Tenant + "." + w.Thread + "." + w.Worker
}

// SaveWorkspace stores or replaces an entry. Errors: unavailable.
func (s *WorkspaceStore) SaveWorkspace(ctx context.Context, w *schemas.Workspace) error {
	return s.save(ctx, w, jetstream.KeyValue.Put)
}

// AddWorkspace stores an entry unless there is one. Errors: unavailable.
func (s *WorkspaceStore) AddWorkspace(ctx context.Context, w *schemas.Workspace) error {
	err := s.save(ctx, w, func(kv jetstream.KeyValue, ctx context.Context, key string, body []byte) (uint64, error) {
		return kv.Create(ctx, key, body)
	})
	if errors.Is(err, schemas.ErrConflict) {
		return nil
	}
	return err
}

func (s *WorkspaceStore) save(ctx context.Context, w *schemas.Workspace, write func(jetstream.KeyValue, context.Context, string, []byte) (uint64, error)) error {
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode the workspace of thread %s: %w", w.Thread, err)
	}
	_, err = write(kv, ctx, keptKey(w), body)
	return wrap(err, "save the workspace of thread "+w.Thread)
}

// DeleteWorkspace deletes an entry. Errors: unavailable.
func (s *WorkspaceStore) DeleteWorkspace(ctx context.Context, w *schemas.Workspace) error {
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	return wrap(kv.Purge(ctx, keptKey(w), jetstream.PurgeTTL(deleteMarkerTTL)), "delete the entry of the workspace of thread "+w.Thread)
}

// Workspaces returns the entries of a worker, in every tenant. A value may be stale. Errors: unavailable, deadline_exceeded.
func (s *WorkspaceStore) Workspaces(ctx context.Context, worker string) ([]schemas.Workspace, error) {
	return keptWorkspaces(ctx, s.conn, "*.*."+worker)
}

// Kept returns the workspaces that workers keep of a tenant's threads without a session. Errors: unavailable, deadline_exceeded.
func (r *Reader) Kept(ctx context.Context, tenant string) ([]schemas.Workspace, error) {
	return keptWorkspaces(ctx, r.conn, tenant+".*.*")
}

func keptWorkspaces(ctx context.Context, c *Conn, keys string) ([]schemas.Workspace, error) {
	return listPlaced(ctx, c, keptPrefix+keys, "workspaces", func(w *schemas.Workspace, tenant, thread, worker string) {
		w.Tenant, w.Thread, w.Worker = tenant, thread, worker
	})
}

// maxRemovals is how many workspaces a worker removes on request at a time.
const maxRemovals = 16

// subscribeWorkspaces receives requests about the workspaces on this worker's disk until end is called.
func subscribeWorkspaces(l *Listener) (end func(), err error) {
	return answerRequests(l, l.conn.subjects.Workspaces("*", l.worker), "", maxRemovals, func(m *nats.Msg, err error) []byte {
		if err == nil {
			err = l.handleWorkspace(m)
		}
		if err == nil {
			return nil
		}
		body, _ := json.Marshal(schemas.AsError(err)) // an Error holds only strings
		return body
	})
}

func (l *Listener) handleWorkspace(m *nats.Msg) error {
	tenant, _, _ := l.conn.subjects.tokens(m.Subject)
	req, err := schemas.DecodeWorkspaceRemoval(m.Data)
	if err := errors.Join(err, schemas.CheckID("tenant", tenant)); err != nil {
		return err
	}
	handler, ctx := l.target()
	return handler.HandleWorkspace(ctx, tenant, *req)
}

// RemoveWorkspace removes a workspace that no session uses from a worker's disk. Errors: not_found; conflict when the thread has a session
// there, or a push is owed; unavailable when the worker is not running.
func (c *Caller) RemoveWorkspace(ctx context.Context, tenant, worker string, req schemas.WorkspaceRemoval) error {
	if err := schemas.CheckID("worker", worker); err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode the removal of a workspace: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	m, err := c.conn.request(ctx, &nats.Msg{Subject: c.conn.subjects.Workspaces(tenant, worker), Data: body})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return schemas.Errorf(schemas.CodeUnavailable, "worker %s, which has the workspace of thread %s, is not running: start it again", worker, req.Thread)
	case err != nil:
		return wrap(err, "remove the workspace of thread "+req.Thread)
	case len(m.Data) == 0:
		return nil
	}
	var e schemas.Error
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "remove the workspace of thread %s: decode the answer: %w", req.Thread, err)
	}
	return &e
}
