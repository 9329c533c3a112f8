package events

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/events/seal"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// sealName is the key of the state bucket that has the public key of the cell.
	sealName = "seal"
	// sealTime is how long a caller uses what it has read of it.
	sealTime = 30 * time.Second
	// sealWait is the time between two looks for the state of a cell that has no worker yet.
	sealWait = 100 * time.Millisecond
)

// Sealing seals the commands that wait in CMD, and opens them.
type Sealing struct {
	conn *Conn
	keys *seal.Keys // of the worker; set by Ensure

	mu   sync.Mutex
	key  *schemas.SealKey // of the cell, as it was read; nil for none
	read time.Time
}

// Ensure makes the first of these keys the one with which callers seal commands, or ends the sealing; nil keeps what the cell has. Call it
// before the worker takes commands. Errors: invalid_argument when the worker could not open the commands of its cell, unavailable.
func (s *Sealing) Ensure(ctx context.Context, keys *seal.Keys) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	s.keys = keys
	cell, err := s.ofCell(ctx)
	if err != nil {
		return err
	}
	if cell != nil && !keys.Has(cell.ID) {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the commands of this cell are sealed with key %.40q, which this worker does not have: start it with --seal-keys and a file that has it", cell.ID)
	}
	own := keys.Public()
	if keys == nil || (own == nil && cell == nil) || (own != nil && cell != nil && own.ID == cell.ID) {
		return nil
	}
	kv, err := s.conn.stateBucket(ctx)
	if err != nil {
		return err
	}
	if own == nil {
		return wrap(kv.Delete(ctx, sealName), "end the sealing of commands")
	}
	body, err := json.Marshal(own)
	if err == nil {
		_, err = kv.Put(ctx, sealName, body)
	}
	return wrap(err, "publish the key that seals commands")
}

// ofCell reads the key of the cell; nil for none. Errors: unavailable, permission_denied.
func (s *Sealing) ofCell(ctx context.Context) (*schemas.SealKey, error) {
	key := new(schemas.SealKey)
	_, err := s.conn.readState(ctx, sealName, "the key that seals commands", key)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, nil
	}
	return key, err
}

// recent is the key of the cell, at most sealTime old; nil for none. Errors: unavailable, permission_denied.
func (s *Sealing) recent(ctx context.Context) (*schemas.SealKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) < sealTime {
		return s.key, nil
	}
	key, err := s.ofCell(ctx)
	if err == nil {
		s.key, s.read = key, time.Now()
	}
	return key, err
}

// seal encrypts a command that is to wait in CMD, where the cell has a key. It waits until a worker has made the streams of the cell, as
// [Caller.store] does. Errors: unavailable, permission_denied.
func (s *Sealing) seal(ctx context.Context, tenant, thread string, op schemas.Op, m *nats.Msg) error {
	key, err := s.recent(ctx)
	for errors.Is(err, jetstream.ErrBucketNotFound) { // the first worker of the cell makes it, and then stores its key
		missing := err
		if err = sleep(ctx, sealWait); err == nil {
			key, err = s.recent(ctx)
		}
		if err != nil && ctx.Err() != nil {
			return schemas.Errorf(schemas.CodeUnavailable, "no worker has made the streams of the cell: start one with `sluice up` or `sluice worker`: %w", missing)
		}
	}
	if key == nil || err != nil {
		return err
	}
	m.Header[headerSealed] = []string{key.ID}
	m.Data, err = seal.Seal(key, s.place(tenant, thread, op), m.Data)
	return err
}

// open returns the body of a command as its caller made it. Errors: not_found without the key, damaged.
func (s *Sealing) open(m *stored) ([]byte, error) {
	id := m.header.Get(headerSealed)
	if id == "" {
		return m.body, nil
	}
	tenant, thread, op, _ := s.conn.subjects.ParseCommand(m.subject)
	return s.keys.Open(id, s.place(tenant, thread, op), m.body)
}

// place is what a sealed command is bound to: it is no command of another thread.
func (s *Sealing) place(tenant, thread string, op schemas.Op) string {
	return strings.Join([]string{s.conn.subjects.cell, tenant, thread, string(op)}, ".")
}
