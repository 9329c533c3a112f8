package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Roster lists the workers of a cell and the templates that they have.
type Roster struct{ conn *Conn }

// Register writes the entry of a worker. Errors: unavailable.
func (r *Roster) Register(ctx context.Context, w schemas.WorkerInfo) error {
	kv, err := r.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode worker %s: %w", w.ID, err)
	}
	_, err = kv.Put(ctx, workerPrefix+w.ID, body)
	return wrap(err, "register worker "+w.ID)
}

// Unregister deletes the entry of a worker that owns nothing any more. Errors: unavailable.
func (r *Roster) Unregister(ctx context.Context, worker string) error {
	kv, err := r.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	return wrap(kv.Delete(ctx, workerPrefix+worker), "unregister worker "+worker)
}

// Workers is [Reader.Workers].
func (r *Roster) Workers(ctx context.Context) ([]schemas.WorkerInfo, error) {
	return r.conn.listWorkers(ctx)
}

// LeaseAlive reports whether a worker's lease has not expired. Errors: unavailable.
func (r *Roster) LeaseAlive(ctx context.Context, worker string) (bool, error) {
	kv, err := r.conn.bucket(ctx, r.conn.names.leases)
	if err != nil {
		return false, err
	}
	_, err = kv.Get(ctx, worker)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil, wrap(err, "read the lease of worker "+worker)
}

// SaveTemplates publishes the templates that differ from the stored ones, for callers to read. A template of the same name from
// another worker is overwritten: the workers of a cell should have the same templates. Errors: unavailable.
func (r *Roster) SaveTemplates(ctx context.Context, templates []*schemas.Template) error {
	stored, err := r.conn.storedTemplates(ctx)
	if err != nil {
		return err
	}
	kv, err := r.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	for _, t := range templates {
		body, err := json.Marshal(t)
		if err != nil {
			return schemas.Errorf(schemas.CodeInternal, "encode template %s: %w", t.Name, err)
		}
		if bytes.Equal(stored[t.Name], body) {
			continue
		}
		if _, err := kv.Put(ctx, templatePrefix+t.Name, body); err != nil {
			return wrap(err, "save template "+t.Name)
		}
	}
	return nil
}
