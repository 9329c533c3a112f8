package events

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/events/seal"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	// sealName is the key of the state bucket that has the public key of the cell.
	sealName = "seal"
	// sealTime is how long a caller uses what it has read of it.
	sealTime = 30 * time.Second
)

// EnsureSealed makes the first of these keys the one with which callers seal commands, or ends the sealing; nil keeps what the cell has. Call it
// before the worker takes commands. Errors: invalid_argument when the worker could not open the commands of its cell, unavailable.
func (c *Conn) EnsureSealed(ctx context.Context, keys *seal.Keys) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	c.sealKeys = keys
	cell, err := c.readSealKey(ctx)
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
	kv, err := c.stateBucket(ctx)
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

// readSealKey reads the key of the cell; nil for none. Errors: unavailable, permission_denied.
func (c *Conn) readSealKey(ctx context.Context) (*schemas.SealKey, error) {
	key := new(schemas.SealKey)
	_, err := c.readState(ctx, sealName, "the key that seals commands", key)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, nil
	}
	return key, err
}

// sealKeyCache is the key of the cell as a caller has read it.
type sealKeyCache struct {
	mu   sync.Mutex
	key  *schemas.SealKey
	read time.Time
}

// sealKey is the key of the cell, at most sealTime old; nil for none. Errors: unavailable, permission_denied.
func (c *Conn) sealKey(ctx context.Context) (*schemas.SealKey, error) {
	c.sealed.mu.Lock()
	defer c.sealed.mu.Unlock()
	if time.Since(c.sealed.read) < sealTime {
		return c.sealed.key, nil
	}
	key, err := c.readSealKey(ctx)
	if err == nil {
		c.sealed.key, c.sealed.read = key, time.Now()
	}
	return key, err
}

// seal encrypts a command that is to wait in CMD, where the cell has a key.
func (c *Conn) seal(ctx context.Context, tenant, thread string, op schemas.Op, m *nats.Msg) error {
	key, err := c.sealKey(ctx)
	if key == nil || err != nil {
		return err
	}
	m.Header[headerSealed] = []string{key.ID}
	m.Data, err = seal.Seal(key, c.sealPlace(tenant, thread, op), m.Data)
	return err
}

// unseal returns the body of a command as its caller made it. Errors: not_found without the key, damaged.
func (c *Conn) unseal(m *stored) ([]byte, error) {
	id := m.header.Get(headerSealed)
	if id == "" {
		return m.body, nil
	}
	tenant, thread, op, _ := c.subjects.ParseCommand(m.subject)
	return c.sealKeys.Open(id, c.sealPlace(tenant, thread, op), m.body)
}

// sealPlace is what a sealed command is bound to: it is no command of another thread.
func (c *Conn) sealPlace(tenant, thread string, op schemas.Op) string {
	return strings.Join([]string{c.subjects.cell, tenant, thread, string(op)}, ".")
}
