package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
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

// Unregister deletes the entry of a worker's incarnation that owns nothing any more. It leaves the entry of another incarnation, which
// says where the recovery of that one has to start. Errors: conflict when the entry changes meanwhile, unavailable.
func (r *Roster) Unregister(ctx context.Context, w schemas.WorkerInfo) error {
	c, operation := r.conn, "unregister worker "+w.ID
	kv, err := c.stateBucket(ctx)
	if err != nil {
		return err
	}
	found, revision, err := r.entry(ctx, w.ID)
	if err != nil || revision == 0 || found.Incarnation != w.Incarnation {
		return wrap(err, operation)
	}
	return wrap(kv.Delete(ctx, workerPrefix+w.ID, jetstream.LastRevision(revision)), operation)
}

// Worker reads the entry of a worker from the leader: a worker that does not find its own one would not find what it left unfinished.
// Errors: not_found, unavailable.
func (r *Roster) Worker(ctx context.Context, id string) (schemas.WorkerInfo, error) {
	w, revision, err := r.entry(ctx, id)
	if err == nil && revision == 0 {
		err = schemas.Errorf(schemas.CodeNotFound, "worker %s is not registered", id)
	}
	return w, err
}

// entry reads the entry of a worker and its revision, 0 for none. One that does not decode is of no incarnation, and knows no sequence.
func (r *Roster) entry(ctx context.Context, id string) (w schemas.WorkerInfo, revision uint64, err error) {
	c := r.conn
	m, err := c.leaderLast(ctx, kvStream(c.names.state), kvSubject(c.names.state, workerPrefix+id))
	if err != nil || kvDeleted(m) {
		return w, 0, wrap(err, "read the entry of worker "+id)
	}
	if json.Unmarshal(m.data, &w) != nil {
		w = schemas.WorkerInfo{ID: id}
	}
	return w, m.seq, nil
}

// Workers is [Reader.Workers].
func (r *Roster) Workers(ctx context.Context) ([]schemas.WorkerInfo, error) {
	return r.conn.listWorkers(ctx)
}

// LeaseAlive reports whether a worker's lease has not expired. No read shows that: a server that was frozen may answer before it knows
// of the renewals since. So false is confirmed by a write, which only a leader with a majority can do: a delete marker in place of what
// was read. It expires as a lease does, and keeps no worker from acquiring the lease. Errors: unavailable, deadline_exceeded; the worker
// must not be declared dead then.
func (r *Roster) LeaseAlive(ctx context.Context, worker string) (bool, error) {
	alive, err := r.confirmLease(ctx, worker)
	if errors.Is(err, schemas.ErrConflict) { // with an earlier try of its own, or with the marker of another worker
		alive, err = r.confirmLease(ctx, worker)
	}
	if errors.Is(err, schemas.ErrConflict) {
		return true, nil
	}
	return alive, err
}

// confirmLease is LeaseAlive, with a conflict when the lease has changed since it was read.
func (r *Roster) confirmLease(ctx context.Context, worker string) (bool, error) {
	c, operation := r.conn, "read the lease of worker "+worker
	holder, last, err := c.leaseHolder(ctx, worker)
	if err != nil || holder != "" {
		return err == nil, wrap(err, operation)
	}
	marker := &nats.Msg{Subject: c.kvWriteSubject(c.names.leases, worker), Header: nats.Header{headerKVOperation: {"DEL"}}}
	_, err = swap(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return c.js.PublishMsg(ctx, copyOf(marker), jetstream.WithExpectLastSequencePerSubject(last))
	})
	return false, wrap(err, operation)
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

// DeleteTemplates deletes what is published of the templates of these names, except those that a registered worker has. Errors:
// unavailable.
func (r *Roster) DeleteTemplates(ctx context.Context, names []string) error {
	stored, err := r.conn.storedTemplates(ctx)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return stored[name] == nil })
	if len(names) == 0 {
		return nil
	}
	workers, err := r.Workers(ctx)
	if err != nil {
		return err
	}
	kv, err := r.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if slices.ContainsFunc(workers, func(w schemas.WorkerInfo) bool { return slices.Contains(w.Templates, name) }) {
			continue
		}
		if err := kv.Delete(ctx, templatePrefix+name); err != nil {
			return wrap(err, "delete template "+name)
		}
	}
	return nil
}
