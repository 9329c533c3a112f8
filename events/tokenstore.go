package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// TokenStore stores the tokens of the HTTP gateway, without their secrets.
type TokenStore struct{ conn *Conn }

// StoredToken is a token as the state bucket has it, under token.<id>.
type StoredToken struct {
	schemas.Token
	// Hash is the SHA-256 of the secret.
	Hash []byte `json:"hash"`
}

// tokenKeep is how long a token that has expired is still listed.
const tokenKeep = 24 * time.Hour

// NewTokenStore returns the store of the tokens of a connection's cell.
func NewTokenStore(c *Conn) *TokenStore { return &TokenStore{c} }

// CreateToken stores a token. Errors: invalid_argument, conflict for an id that exists, unavailable.
func (s *TokenStore) CreateToken(ctx context.Context, t *StoredToken) error {
	if err := t.Validate(); err != nil {
		return err
	}
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(t)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode token %s: %w", t.ID, err)
	}
	var opts []jetstream.KVCreateOpt
	if !t.Expires.IsZero() {
		opts = append(opts, jetstream.KeyTTL((time.Until(t.Expires) + tokenKeep).Round(time.Second)))
	}
	_, err = watched(ctx, s.conn.refusals, s.writeSubject(t.ID), func(ctx context.Context) (uint64, error) {
		return kv.Create(ctx, tokenPrefix+t.ID, body, opts...)
	})
	return wrap(err, "save token "+t.ID)
}

// Token reads a token from the leader: one that was deleted is gone for every reader. Errors: not_found, invalid_argument, unavailable.
func (s *TokenStore) Token(ctx context.Context, id string) (*StoredToken, error) {
	if err := schemas.CheckID("id", id); err != nil {
		return nil, err
	}
	m, err := s.conn.leaderLast(ctx, kvStream(s.conn.names.state), kvSubject(s.conn.names.state, tokenPrefix+id))
	switch {
	case err != nil:
		return nil, wrap(err, "read token "+id)
	case kvDeleted(m):
		return nil, schemas.Errorf(schemas.CodeNotFound, "token %s does not exist", id)
	}
	t := new(StoredToken)
	if err := json.Unmarshal(m.data, t); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "decode token %s: %w", id, err)
	}
	return t, nil
}

// DeleteToken deletes a token. Errors: unavailable.
func (s *TokenStore) DeleteToken(ctx context.Context, id string) error {
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	_, err = watched(ctx, s.conn.refusals, s.writeSubject(id), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, kv.Purge(ctx, tokenPrefix+id, jetstream.PurgeTTL(deleteMarkerTTL))
	})
	return wrap(err, "delete token "+id)
}

// writeSubject is where a token is written. Clients of a tenant may not.
func (s *TokenStore) writeSubject(id string) string {
	return s.conn.kvWriteSubject(s.conn.names.state, tokenPrefix+id)
}

// EachToken passes the tokens of every tenant to fn. Errors: fn's, unavailable, deadline_exceeded.
func (s *TokenStore) EachToken(ctx context.Context, fn func(*schemas.Token) error) error {
	return s.conn.eachState(ctx, tokenPrefix+"*", "tokens", sessionBatch, func(_ string, m *storedMsg) error {
		var t StoredToken
		if json.Unmarshal(m.data, &t) == nil {
			return fn(&t.Token)
		}
		return nil // a later version may have written it in another form
	})
}
