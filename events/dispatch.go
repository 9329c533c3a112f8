package events

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// decode decodes and validates a command. Its thread and op must be those of the subject, since permissions are given on subjects.
func (l *Listener) decode(subject string, body []byte, header nats.Header) schemas.Delivery {
	var d schemas.Delivery
	var ok bool
	d.Tenant, d.Thread, d.Op, ok = l.conn.subjects.ParseCommand(subject)
	d.Inbox = l.inboxes.ofEvents(d.Tenant, subject, header)
	if !ok || !schemas.ValidID(d.Tenant) || !schemas.ValidID(d.Thread) {
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "thread: the thread of the subject is not a valid id: use 1 to %d of the characters A-Z a-z 0-9 _ -", schemas.MaxIDLength).With("path", "thread")
		return d
	}
	cmd, err := schemas.DecodeCommand(body)
	switch {
	case err != nil:
		d.Invalid = shorten(schemas.AsError(err))
	case cmd.Thread != d.Thread:
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "thread: %q in the command, %q in the subject", cmd.Thread, d.Thread).With("path", "thread")
	case cmd.Op != d.Op:
		d.Invalid = schemas.Errorf(schemas.CodeInvalidArgument, "op: %q in the command, %q in the subject", cmd.Op, d.Op).With("path", "op")
	default:
		cmd.Origin = withTrace(cmd.Origin, header)
		d.SetCommand(cmd)
	}
	return d
}

// withTrace returns an origin with the trace context of a message's headers, unless it has one. Libraries differ in the case of headers.
func withTrace(o schemas.Origin, header nats.Header) schemas.Origin {
	var parent, state string
	for name, values := range header {
		switch {
		case len(values) == 0:
		case strings.EqualFold(name, schemas.HeaderTraceParent):
			parent = values[0]
		case strings.EqualFold(name, schemas.HeaderTraceState):
			state = values[0]
		}
	}
	return o.WithTrace(parent, state)
}

// addTrace adds a trace context to the headers of a message.
func addTrace(header nats.Header, o schemas.Origin) nats.Header {
	if o.TraceParent != "" {
		header[schemas.HeaderTraceParent] = []string{o.TraceParent}
	}
	if o.TraceState != "" {
		header[schemas.HeaderTraceState] = []string{o.TraceState}
	}
	return header
}

// maxReason is the most bytes of an error's text in a message. The text may quote the command, which can be as large as a message:
// an error that does not fit would be retried forever.
const maxReason = 1 << 10

func shorten(e *schemas.Error) *schemas.Error {
	if len(e.Message) <= maxReason {
		return e
	}
	short := *e
	short.Message = strings.ToValidUTF8(e.Message[:maxReason], "") + "…"
	return &short
}

// deadLetter stores a command that can never be accepted, with the reason, before it is removed from CMD: once, also when it is delivered
// again while its ack is on its way. One that is sealed stays so.
func (d *dispatcher) deadLetter(ctx context.Context, h *unacked, of schemas.Delivery, m *stored, reason *schemas.Error) error {
	c, thread, tenant := d.listener.conn, of.Thread, of.Tenant
	if !schemas.ValidID(thread) {
		thread = noProcess
	}
	if !schemas.ValidID(tenant) {
		tenant = schemas.DefaultTenant
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := c.needStream(ctx, &c.dlq, c.deadLetterConfig()); err != nil {
		return err
	}
	header := nats.Header{headerReason: {reason.Message}, headerInbox: {of.Inbox}}
	if id := m.header.Get(headerSealed); id != "" {
		header[headerSealed] = []string{id}
	}
	if of.Command != nil {
		header = addTrace(header, of.Command.Origin)
	}
	id := fmt.Sprint(h.seq, ".", h.sent.UnixNano()) // CMD may be made anew
	_, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: c.subjects.DeadLetter(tenant, thread), Data: m.body, Header: header}, jetstream.WithMsgID(id))
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		c.dlq.Store(false) // the stream was deleted
	}
	return wrap(err, "store a dead letter")
}

// handleRPC handles a command that came directly from a caller.
func (l *Listener) handleRPC(m *nats.Msg) {
	d := l.decode(m.Subject, m.Data, m.Header)
	if d.Inbox == "" {
		d.Inbox = l.inboxes.ofReply(d.Tenant, m)
	}
	d.Attempt = 1
	handler, ctx := l.target()
	handler.HandleCommand(ctx, d)
}
