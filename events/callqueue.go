package events

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"
)

// queue stores the command in CMD, from which a worker takes it later. Errors: conflict when the key belongs to another command.
func (k *Call) queue(ctx context.Context, header nats.Header) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	conn := k.caller.conn
	// When this read fails, a record that is already there answers, and Next checks whose it is.
	if last, err := k.caller.Last(ctx, k.ref.Tenant, k.ref.Thread, k.ref.Process); err == nil {
		if err := k.check(last); err != nil {
			return err
		}
		if k.runsAfter(last) {
			k.before = last.Seq
		}
	}
	m := &nats.Msg{Subject: conn.subjects.Command(k.ref.Tenant, k.ref.Thread, k.cmd.Op), Header: header, Data: k.body}
	err := conn.sealing.seal(ctx, k.ref.Tenant, k.ref.Thread, k.cmd.Op, m)
	if err == nil {
		err = k.caller.store(ctx, m)
	}
	k.queued.Store(err == nil)
	return wrap(err, "queue the command")
}

// store stores a message of a caller in CMD, once. Errors: those of nats.go, permission_denied.
func (c *Caller) store(ctx context.Context, m *nats.Msg) error {
	id := ulid.Make().String()
	_, err := watched(ctx, c.conn.refusals, m.Subject, func(ctx context.Context) (struct{}, error) {
		_, err := c.conn.store(ctx, m, id)
		return struct{}{}, err
	})
	return err
}
