package events

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// Ask sends a request to a subject of a user's, which a program answers or a stream stores, and returns the answer. Errors: unavailable
// when there is no responder, permission_denied when the server refuses the subject, deadline_exceeded when ctx ends first, too_large
// when the server does not accept the body.
func (w *Worker) Ask(ctx context.Context, m schemas.HookMessage) ([]byte, error) {
	replies, err := w.conn.nc.SubscribeSync(w.conn.nc.NewInbox())
	if err != nil {
		return nil, wrap(err, "request "+m.Subject)
	}
	defer func() { _ = replies.Unsubscribe() }() // on failure it ends with the connection
	if err := w.send(ctx, m, replies.Subject); err != nil {
		return nil, err
	}
	reply, err := replies.NextMsgWithContext(ctx)
	switch {
	case err == nil:
		return reply.Data, nil
	case errors.Is(err, nats.ErrNoResponders):
		return nil, schemas.Errorf(schemas.CodeUnavailable, "no responder on %s: start the program that answers, or remove the hook from the template", m.Subject)
	default:
		return nil, wrap(err, "request "+m.Subject)
	}
}

// Post publishes on a subject of a user's, and returns once the server has the message. Errors: those of Ask without unavailable for
// a missing responder.
func (w *Worker) Post(ctx context.Context, m schemas.HookMessage) error { return w.send(ctx, m, "") }

// send publishes, and waits until the server has the message or has refused it.
func (w *Worker) send(ctx context.Context, m schemas.HookMessage, reply string) error {
	nc := w.conn.nc
	before := nc.LastError()
	err := nc.PublishMsg(&nats.Msg{
		Subject: m.Subject, Reply: reply, Data: m.Body, Header: addTrace(nats.Header{jetstream.MsgIDHeader: {m.ID}}, m.Origin),
	})
	if err == nil {
		err = flush(ctx, nc)
	}
	// The server reports a subject that it refuses to the connection alone, and before it answers the flush.
	why := nc.LastError()
	refused := errors.Is(why, nats.ErrPermissionViolation) && strings.Contains(why.Error(), strconv.Quote(m.Subject))
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return schemas.Errorf(schemas.CodeTooLarge, "message to %s has %d bytes: the NATS server accepts %d in one message", m.Subject, len(m.Body), w.conn.MaxPayload())
	case err != nil:
		return wrap(err, "publish to "+m.Subject)
	case refused && why != before: //nolint:errorlint // the same value is an earlier refusal
		return schemas.Errorf(schemas.CodePermissionDenied, "the NATS server refuses subject %s to this worker: permit the worker's user to publish on it (%w)", m.Subject, why)
	default:
		return nil
	}
}
