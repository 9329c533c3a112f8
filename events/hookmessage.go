package events

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Ask sends a request to a subject of a user's, which a program answers or a stream stores, and returns the answer. Errors: unavailable
// when there is no responder, permission_denied when the server refuses the subject, deadline_exceeded when ctx ends first, too_large
// when the server does not accept the body.
func (w *Worker) Ask(ctx context.Context, m schemas.HookMessage) ([]byte, error) {
	reply, err := w.conn.request(ctx, messageOf(m))
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "no responder on %s: start the program that answers, or remove the hook from the template", m.Subject)
	}
	if err != nil {
		return nil, w.notSent(err, m)
	}
	return reply.Data, nil
}

// Post publishes on a subject of a user's, and returns once the server has the message. Errors: those of Ask without unavailable for
// a missing responder.
func (w *Worker) Post(ctx context.Context, m schemas.HookMessage) error {
	nc := w.conn.nc
	before := nc.LastError()
	err := nc.PublishMsg(messageOf(m))
	if err == nil {
		err = flush(ctx, nc)
	}
	if err != nil {
		return w.notSent(err, m)
	}
	// The server reports a subject that it refuses before it answers the flush. Conn's refusals may get the report later.
	last := nc.LastError()
	if r := refusalIn(last); r.subject == m.Subject && last != before { //nolint:errorlint // the same value is an earlier refusal
		return r.err()
	}
	return nil
}

// notSent is the error of a message that was not published, or got no answer.
func (w *Worker) notSent(err error, m schemas.HookMessage) error {
	if errors.Is(err, nats.ErrMaxPayload) {
		return schemas.Errorf(schemas.CodeTooLarge, "message to %s has %d bytes: the NATS server accepts %d in one message", m.Subject, len(m.Body), w.conn.MaxPayload())
	}
	return wrap(err, "message to "+m.Subject)
}

func messageOf(m schemas.HookMessage) *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Data: m.Body, Header: addTrace(nats.Header{jetstream.MsgIDHeader: {m.ID}}, m.Origin)}
}
