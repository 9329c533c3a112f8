package events

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// OwedStore stores the pushes that workers owe, one for a thread and worker. Only that worker writes an entry, or, while it is dead,
// the worker that ends its session.
type OwedStore struct{ conn *Conn }

func owedKey(o *schemas.OwedPush) string {
	return owedPrefix + o.Tenant + "." + o.Thread + "." + o.Worker
}

// SaveOwed stores or replaces an entry. Errors: invalid_argument, unavailable.
func (s *OwedStore) SaveOwed(ctx context.Context, o *schemas.OwedPush) error {
	for field, id := range map[string]string{"tenant": o.Tenant, "thread": o.Thread, "worker": o.Worker} {
		if err := schemas.CheckID(field, id); err != nil {
			return err
		}
	}
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode the owed push of thread %s: %w", o.Thread, err)
	}
	_, err = kv.Put(ctx, owedKey(o), body)
	return wrap(err, "save the owed push of thread "+o.Thread)
}

// DeleteOwed deletes an entry. Errors: unavailable.
func (s *OwedStore) DeleteOwed(ctx context.Context, o *schemas.OwedPush) error {
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	return wrap(kv.Purge(ctx, owedKey(o), jetstream.PurgeTTL(deleteMarkerTTL)), "delete the owed push of thread "+o.Thread)
}

// Owes reports, by the leader, whether a push of a thread's workspace is owed by a worker. Errors: unavailable, deadline_exceeded.
func (s *OwedStore) Owes(ctx context.Context, tenant, thread, worker string) (bool, error) {
	key := owedKey(&schemas.OwedPush{Tenant: tenant, Thread: thread, Worker: worker})
	m, err := s.conn.leaderLast(ctx, kvStream(s.conn.names.state), kvSubject(s.conn.names.state, key))
	return !kvDeleted(m), wrap(err, "read the owed push of thread "+thread)
}

// OwedPushes returns what a worker owes, in every tenant. A value may be stale. Errors: unavailable, deadline_exceeded.
func (s *OwedStore) OwedPushes(ctx context.Context, worker string) ([]schemas.OwedPush, error) {
	return owedPushes(ctx, s.conn, "*.*."+worker)
}

// Owed returns the pushes that are owed for a tenant's threads. Errors: unavailable, deadline_exceeded.
func (r *Reader) Owed(ctx context.Context, tenant string) ([]schemas.OwedPush, error) {
	return owedPushes(ctx, r.conn, tenant+".*.*")
}

func owedPushes(ctx context.Context, c *Conn, keys string) ([]schemas.OwedPush, error) {
	return listPlaced(ctx, c, owedPrefix+keys, "owed pushes", func(o *schemas.OwedPush, tenant, thread, worker string) {
		o.Tenant, o.Thread, o.Worker = tenant, thread, worker
	})
}
