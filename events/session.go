package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// The state bucket holds two kinds of keys: one bucket more would cost every start, and every tenth of a second of an idle
// server, another stream.
const (
	sessionPrefix = "session."
	workerPrefix  = "worker."
)

func sessionKey(tenant, thread string) string { return sessionPrefix + tenant + "." + thread }

// Session reads a thread's session and the revision to change it by. What it returns may be stale: only the change
// decides. Errors: not_found, unavailable.
func (c *Conn) Session(ctx context.Context, tenant, thread string) (*schemas.Session, uint64, error) {
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return nil, 0, err
	}
	entry, err := kv.Get(ctx, sessionKey(tenant, thread))
	if err != nil {
		return nil, 0, wrap(err, "read the session of thread "+thread)
	}
	var s schemas.Session
	if err := json.Unmarshal(entry.Value(), &s); err != nil {
		return nil, 0, schemas.Errorf(schemas.CodeInternal, "the session of thread %s is unreadable: %w", thread, err)
	}
	return &s, entry.Revision(), nil
}

// SaveSession writes a session over the revision that was read, 0 for a new one, and returns its new revision. Errors:
// conflict when somebody was first, unavailable.
func (c *Conn) SaveSession(ctx context.Context, s *schemas.Session, revision uint64) (uint64, error) {
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "encode session: %w", err)
	}
	key := sessionKey(s.Tenant, s.Thread)
	if revision == 0 {
		revision, err = kv.Create(ctx, key, body)
	} else {
		revision, err = kv.Update(ctx, key, body, revision)
	}
	return revision, wrap(err, "save the session of thread "+s.Thread)
}

// DeleteSession removes a session if it is still at this revision. Errors: conflict, unavailable.
func (c *Conn) DeleteSession(ctx context.Context, s *schemas.Session, revision uint64) error {
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return err
	}
	// The mark that is left of it goes by itself: threads come and go for as long as the bucket is there.
	return wrap(kv.Purge(ctx, sessionKey(s.Tenant, s.Thread), jetstream.LastRevision(revision), jetstream.PurgeTTL(deletedFor)), "delete the session of thread "+s.Thread)
}

// deletedFor is how long the state bucket remembers that a session was deleted.
const deletedFor = time.Minute

// listBatch is how many sessions are read at a time.
const listBatch = 500

// EachSession gives every session of every tenant to fn, with the revision to change it by. What it gives may be stale: only the
// change decides. Errors: fn's, unavailable, deadline_exceeded.
func (c *Conn) EachSession(ctx context.Context, fn func(s *schemas.Session, revision uint64) error) error {
	return c.eachSession(ctx, "*", fn)
}

// Sessions gives the sessions of a tenant to fn, by the time of their last change. Errors: fn's, unavailable,
// deadline_exceeded.
func (c *Conn) Sessions(ctx context.Context, tenant string, fn func(*schemas.Session) error) error {
	return c.eachSession(ctx, tenant, func(s *schemas.Session, _ uint64) error { return fn(s) })
}

func (c *Conn) eachSession(ctx context.Context, tenant string, fn func(s *schemas.Session, revision uint64) error) error {
	// Direct reads: listing a bucket's keys would create a consumer each time. The bucket keeps one message a key.
	next := uint64(1)
	for {
		msgs, more, err := c.directGet(ctx, "KV_"+c.names.state, directRequest{Seq: next, NextBy: "$KV." + c.names.state + "." + sessionPrefix + tenant + ".*", Batch: listBatch})
		if err != nil {
			return wrap(err, "list sessions")
		}
		for _, m := range msgs {
			next = m.seq + 1
			var s schemas.Session
			if len(m.data) == 0 || json.Unmarshal(m.data, &s) != nil {
				continue // a deleted key is a message without data
			}
			if err := fn(&s, m.seq); err != nil {
				return err
			}
		}
		if !more || len(msgs) == 0 {
			return nil
		}
	}
}

// Register writes what is known of a worker. Errors: unavailable.
func (c *Conn) Register(ctx context.Context, w schemas.WorkerInfo) error {
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return err
	}
	body, err := json.Marshal(w)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode worker: %w", err)
	}
	_, err = kv.Put(ctx, workerPrefix+w.ID, body)
	return wrap(err, "register worker "+w.ID)
}

// Unregister forgets a worker that has left nothing behind. Errors: unavailable.
func (c *Conn) Unregister(ctx context.Context, worker string) error {
	kv, err := c.bucket(ctx, c.names.state)
	if err != nil {
		return err
	}
	return wrap(kv.Delete(ctx, workerPrefix+worker), "unregister worker "+worker)
}

// maxWorkers is how many workers a cell's list may hold; a cell is a few servers' worth of them.
const maxWorkers = 10_000

// Workers lists the workers that are registered. Errors: unavailable.
func (c *Conn) Workers(ctx context.Context) ([]schemas.WorkerInfo, error) {
	// A direct read: listing a bucket's keys would create a consumer each time. The bucket keeps one message a key.
	msgs, _, err := c.directGet(ctx, "KV_"+c.names.state, directRequest{Seq: 1, NextBy: "$KV." + c.names.state + "." + workerPrefix + "*", Batch: maxWorkers})
	if err != nil {
		return nil, wrap(err, "list workers")
	}
	out := make([]schemas.WorkerInfo, 0, len(msgs))
	for _, m := range msgs {
		var w schemas.WorkerInfo
		if len(m.data) > 0 && json.Unmarshal(m.data, &w) == nil { // a deleted key is a message without data
			out = append(out, w)
		}
	}
	return out, nil
}
