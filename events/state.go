package events

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// The state bucket holds these kinds of keys. A bucket for each would cost another stream: time at every start, and work every
// 100 ms on an idle server.
const (
	sessionPrefix  = "session."
	workerPrefix   = "worker."
	templatePrefix = "template."
	usagePrefix    = "logusage."
	recordsPrefix  = "evtusage."
	owedPrefix     = "owed."
	keptPrefix     = "workspace."
	servicePrefix  = "service."
	tokenPrefix    = "token."
)

// Batches of a list, in keys.
const (
	sessionBatch = 500
	// documentBatch reads all workers or templates at once: a cell has a few servers' worth of them.
	documentBatch = 10_000
)

func sessionKey(tenant, thread string) string { return sessionPrefix + tenant + "." + thread }

func (c *Conn) stateBucket(ctx context.Context) (jetstream.KeyValue, error) {
	return c.bucket(ctx, c.names.state)
}

// readState decodes the value of a key into v and returns its revision. what names it in errors. Errors: not_found, unavailable.
func (c *Conn) readState(ctx context.Context, key, what string, v any) (uint64, error) {
	kv, err := c.stateBucket(ctx)
	if err != nil {
		return 0, err
	}
	subject := c.directSubject(kvStream(c.names.state)) + "." + kvSubject(c.names.state, key) // of kv.Get
	entry, err := watched(ctx, c.refusals, subject, func(ctx context.Context) (jetstream.KeyValueEntry, error) {
		return kv.Get(ctx, key)
	})
	if err != nil {
		return 0, wrap(err, "read "+what)
	}
	if err := json.Unmarshal(entry.Value(), v); err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "decode %s: %w", what, err)
	}
	return entry.Revision(), nil
}

// eachState passes the messages of all keys that match to fn, in the order of their last change. A value may be stale, and one that
// changes during the read may be passed twice. Errors: fn's, unavailable, deadline_exceeded.
func (c *Conn) eachState(ctx context.Context, keys, what string, batch int, fn func(key string, m *storedMsg) error) error {
	prefix := "$KV." + c.names.state + "."
	// Direct reads: to list the keys of a bucket would create a consumer each time. The bucket stores one message a key.
	for next := uint64(1); ; {
		msgs, more, err := c.directGet(ctx, "KV_"+c.names.state, directRequest{Seq: next, NextBy: prefix + keys, Batch: batch})
		if err != nil {
			return wrap(err, "list "+what)
		}
		for i := range msgs {
			next = msgs[i].seq + 1
			if len(msgs[i].data) == 0 {
				continue // a deleted key
			}
			if err := fn(msgs[i].subject[len(prefix):], &msgs[i]); err != nil {
				return err
			}
		}
		if !more || len(msgs) == 0 {
			return nil
		}
	}
}

// listPlaced returns the values of all keys that match and that end in tenant, thread and worker. place sets these in a value: the key
// decides, since an entry is deleted by it. Errors: unavailable, deadline_exceeded.
func listPlaced[T any](ctx context.Context, c *Conn, keys, what string, place func(v *T, tenant, thread, worker string)) (out []T, err error) {
	err = c.eachState(ctx, keys, what, sessionBatch, func(key string, m *storedMsg) error {
		ids := strings.Split(key, ".")
		if len(ids) == 4 && schemas.ValidID(ids[1]) && schemas.ValidID(ids[2]) {
			var v T
			if json.Unmarshal(m.data, &v) == nil { // a later version may have written it in another form
				place(&v, ids[1], ids[2], ids[3])
				out = append(out, v)
			}
		}
		return nil
	})
	return out, err
}

func (c *Conn) readSession(ctx context.Context, tenant, thread string) (*schemas.Session, uint64, error) {
	s := new(schemas.Session)
	revision, err := c.readState(ctx, sessionKey(tenant, thread), "the session of thread "+thread, s)
	if err != nil {
		return nil, 0, err
	}
	return s, revision, nil
}

func (c *Conn) eachSession(ctx context.Context, tenant string, fn func(s *schemas.Session, revision uint64) error) error {
	return c.eachState(ctx, sessionPrefix+tenant+".*", "sessions", sessionBatch, func(_ string, m *storedMsg) error {
		s := new(schemas.Session)
		if json.Unmarshal(m.data, s) == nil {
			return fn(s, m.seq)
		}
		return nil // a later version may have written it in another form
	})
}

func (c *Conn) listWorkers(ctx context.Context) ([]schemas.WorkerInfo, error) {
	out := []schemas.WorkerInfo{}
	err := c.eachState(ctx, workerPrefix+"*", "workers", documentBatch, func(_ string, m *storedMsg) error {
		var w schemas.WorkerInfo
		if json.Unmarshal(m.data, &w) == nil {
			out = append(out, w)
		}
		return nil
	})
	return out, err
}

// liveLeases returns the ids of the workers whose lease has not expired.
func (c *Conn) liveLeases(ctx context.Context) (map[string]bool, error) {
	prefix := "$KV." + c.names.leases + "."
	msgs, _, err := c.directGet(ctx, "KV_"+c.names.leases, directRequest{Seq: 1, NextBy: prefix + "*", Batch: documentBatch})
	if err != nil {
		return nil, wrap(err, "list leases")
	}
	live := make(map[string]bool, len(msgs))
	for i := range msgs {
		live[msgs[i].subject[len(prefix):]] = len(msgs[i].data) > 0 // a deleted key is empty
	}
	return live, nil
}

// storedTemplates returns the encoded templates by name.
func (c *Conn) storedTemplates(ctx context.Context) (map[string][]byte, error) {
	out := make(map[string][]byte)
	err := c.eachState(ctx, templatePrefix+"*", "templates", documentBatch, func(key string, m *storedMsg) error {
		out[key[len(templatePrefix):]] = m.data
		return nil
	})
	return out, err
}
