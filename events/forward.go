package events

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// forwardTimeout bounds the wait for the owner that a durable command is forwarded to. A request without an answer is sent again before: a
// broken route may have lost it, and the owner decides on a command once.
const forwardTimeout = 5 * time.Second

// verdicts are the answers to a forwarded command. An earlier version takes one that it does not know for retry.
var verdicts = map[schemas.Action]string{
	schemas.ActionDone: "done", schemas.ActionRetry: "retry", schemas.ActionDead: "dead", schemas.ActionFull: "full", schemas.ActionDecline: "decline",
	schemas.ActionLimit: "limit",
}

// forward sends a durable command to another worker, and returns that worker's verdict. With an error the verdict is to retry: its
// record answers the command if the worker accepted it.
func (l *Listener) forward(ctx context.Context, to string, d schemas.Delivery, body []byte) (schemas.Verdict, error) {
	v := schemas.Verdict{Action: schemas.ActionRetry, To: to}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	m := &nats.Msg{
		Subject: l.conn.subjects.Forward(d.Tenant, to, d.Thread, string(d.Op)), Data: body,
		Header: addTrace(nats.Header{
			headerInbox: {d.Inbox}, headerAttempt: {strconv.Itoa(d.Attempt)}, headerSent: {d.Sent.UTC().Format(time.RFC3339Nano)},
		}, d.Command.Origin),
	}
	reply, err := askWorker(ctx, l.conn, m)
	if err != nil {
		return v, err
	}
	name := reply.Header.Get(headerVerdict)
	for action, known := range verdicts {
		if name == known {
			v.Action = action
		}
	}
	if len(reply.Data) > 0 {
		v.Reason = new(schemas.Error)
		if json.Unmarshal(reply.Data, v.Reason) != nil {
			v.Reason = nil
		}
	}
	return v, nil
}

// askWorker sends a request to another worker, again while it has no answer. Errors: those of nats.go.
func askWorker(ctx context.Context, c *Conn, m *nats.Msg) (*nats.Msg, error) {
	return answered(ctx, func(ctx context.Context) (*nats.Msg, error) { return c.nc.RequestMsgWithContext(ctx, m) })
}

// handleForward handles what another worker passes on because this one owns the thread by KV.
func (l *Listener) handleForward(m *nats.Msg) {
	tenant, _, op, _ := l.conn.subjects.ParseCommand(m.Subject)
	switch op {
	case placeVerb:
		l.places.handleForwarded(m, tenant)
		return
	case roomVerb: // its own report
		return
	}
	d := l.decode(m.Subject, m.Data, m.Header)
	// It stays durable: the other worker has it unacked until the verdict.
	d.Durable, d.Attempt = true, 1
	if n, err := strconv.Atoi(m.Header.Get(headerAttempt)); err == nil && n > 1 {
		d.Attempt = n
	}
	d.Sent, _ = time.Parse(time.RFC3339Nano, m.Header.Get(headerSent)) // without it the command counts as new
	handler, ctx := l.target()
	v := handler.HandleCommand(ctx, d)
	l.replyVerdict(d.Tenant, m, v)
	if v.Action == schemas.ActionFull {
		l.room.owe(threadName{d.Tenant, d.Thread})
	}
}

// replyVerdict answers a forwarded command. If the answer is lost, the command is delivered again, and its record answers.
func (l *Listener) replyVerdict(tenant string, m *nats.Msg, v schemas.Verdict) {
	name, ok := verdicts[v.Action]
	if !ok { // another worker owns the thread by now: the next delivery finds it
		name = verdicts[schemas.ActionRetry]
	}
	l.inboxes.respond(tenant, m, nats.Header{headerVerdict: {name}}, encodeVerdict(v))
}
