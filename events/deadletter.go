package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// deadLetterConfig is the stream DLQ. Like MSG it is made when it is first needed.
func (c *Conn) deadLetterConfig(t Topology) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: c.names.dlq, Description: "commands that can never be accepted",
		Subjects: []string{c.Subjects.AllDeadLetters()}, Discard: jetstream.DiscardOld,
		MaxAge: t.EventAge, MaxBytes: t.DeadBytes,
		Storage: jetstream.FileStorage, Replicas: t.Replicas, AllowDirect: true, Duplicates: time.Minute,
	}
}

// bury keeps a command that can never be accepted, with the reason, before it is taken out of CMD.
func (c *Conn) bury(ctx context.Context, d schemas.Delivery, m jetstream.Msg, reason *schemas.Error) error {
	thread := d.Thread
	if !schemas.ValidID(thread) {
		thread = noProcess
	}
	tenant := d.Tenant
	if !schemas.ValidID(tenant) {
		tenant = schemas.DefaultTenant
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := c.needStream(ctx, &c.deadLetter, c.deadLetterConfig(c.topology.withDefaults())); err != nil {
		return err
	}
	_, err := c.js.PublishMsg(ctx, &nats.Msg{
		Subject: c.Subjects.DeadLetter(tenant, thread), Data: m.Data(),
		Header: nats.Header{headerReason: {reason.Message}, headerInbox: {d.Inbox}},
	})
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		c.deadLetter.Store(false) // somebody removed it
	}
	return wrap(err, "keep a dead letter")
}
