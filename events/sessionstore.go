package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/sluice-dev/sluice/schemas"
)

// SessionStore stores the sessions of threads, which change by compare-and-swap.
type SessionStore struct{ conn *Conn }

// deleteMarkerTTL is how long the state bucket keeps the marker of a deleted key, and that of a session after the last record and the
// last output of its thread have expired.
const deleteMarkerTTL = time.Minute

// Session reads the session of a thread and the revision to change it by, from the leader: a worker that reads its own session from a
// replica that is behind would give it up. Only the change decides. With not_found, the revision is that for a new session, and the
// value has the epoch of the last one: the epochs of a thread go on while its records and its output exist. Errors: not_found; internal
// with the detail [schemas.DetailUnreadable] for an entry that does not decode; unavailable.
func (s *SessionStore) Session(ctx context.Context, tenant, thread string) (*schemas.Session, uint64, error) {
	c, what := s.conn, "the session of thread "+thread
	if !schemas.ValidID(tenant) || !schemas.ValidID(thread) {
		return nil, 0, schemas.Errorf(schemas.CodeInvalidArgument, "read the session of a thread: the tenant or the thread is not a valid id")
	}
	key := sessionKey(tenant, thread)
	m, err := c.leaderLast(ctx, kvStream(c.names.state), kvSubject(c.names.state, key))
	switch {
	case err != nil:
		return nil, 0, wrap(err, "read "+what)
	case kvDeleted(m):
		last, revision := new(schemas.Session), uint64(0)
		if m != nil {
			last.Epoch, revision = parseUint(m.header.Get(headerEpoch)), m.seq
		}
		return last, revision, schemas.Errorf(schemas.CodeNotFound, "read %s: there is none", what)
	}
	session := new(schemas.Session)
	if err := json.Unmarshal(m.data, session); err != nil {
		return nil, 0, schemas.Errorf(schemas.CodeInternal, "decode %s: %w: delete the key %s of the bucket %s, and the thread gets a new session",
			what, err, key, c.names.state).With(schemas.DetailUnreadable, key)
	}
	return session, m.seq, nil
}

// SaveSession writes a session over the revision that was read, and returns the new revision. Errors: conflict
// when another worker changed it first, unavailable.
func (s *SessionStore) SaveSession(ctx context.Context, session *schemas.Session, revision uint64) (uint64, error) {
	return saveState(ctx, s.conn, sessionKey(session.Tenant, session.Thread), "the session of thread "+session.Thread, session, revision, 0)
}

// saveState writes the value of a key over the revision that was read, and returns the new one. With a ttl, the key expires. what names it
// in errors. Errors: conflict when another writer was first, unavailable.
func saveState(ctx context.Context, c *Conn, key, what string, v any, revision uint64, ttl time.Duration) (uint64, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "encode %s: %w", what, err)
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(revision)}
	if ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(ttl.Round(time.Second)))
	}
	var tries atomic.Int32
	saved, err := swap(ctx, func(ctx context.Context) (uint64, error) {
		tries.Add(1)
		ack, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: c.kvWriteSubject(c.names.state, key), Data: body}, opts...)
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	})
	if err = wrap(err, "save "+what); tries.Load() > 1 && errors.Is(err, schemas.ErrConflict) {
		// It may be with an earlier try, which had no answer.
		m, readErr := c.leaderLast(ctx, kvStream(c.names.state), kvSubject(c.names.state, key))
		if readErr == nil && m != nil && m.seq > revision && bytes.Equal(m.data, body) {
			return m.seq, nil
		}
	}
	return saved, err
}

// DeleteSession deletes a session if it is still at this revision. Errors: conflict, unavailable.
func (s *SessionStore) DeleteSession(ctx context.Context, session *schemas.Session, revision uint64) error {
	// The delete marker expires: threads come and go for as long as the bucket exists.
	ttl := max(s.conn.topology.EventAge, s.conn.topology.LogAge) + deleteMarkerTTL
	key, writer, operation := sessionKey(session.Tenant, session.Thread), nuid.Next(), "delete the session of thread "+session.Thread
	_, err := swap(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return s.conn.js.PublishMsg(ctx, &nats.Msg{
			Subject: s.conn.kvWriteSubject(s.conn.names.state, key),
			Header: nats.Header{
				headerKVOperation: {"PURGE"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject},
				headerEpoch: {strconv.FormatUint(session.Epoch, 10)}, headerWriter: {writer},
			},
		}, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(ttl.Round(time.Second)))
	})
	if err = wrap(err, operation); errors.Is(err, schemas.ErrConflict) {
		// It may be with an earlier try, which had no answer.
		m, readErr := s.conn.leaderLast(ctx, kvStream(s.conn.names.state), kvSubject(s.conn.names.state, key))
		if readErr == nil && m != nil && m.header.Get(headerWriter) == writer {
			return nil
		}
	}
	return err
}

// EachSession passes every session of every tenant to fn, with the revision to change it by. A value may be stale: only the change
// decides. Errors: fn's, unavailable, deadline_exceeded.
func (s *SessionStore) EachSession(ctx context.Context, fn func(s *schemas.Session, revision uint64) error) error {
	return s.conn.eachSession(ctx, "*", fn)
}
