package events

import (
	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// answerRequests answers the requests on a subject until end is called, some at a time: one more is refused. Workers with the same queue
// share them. answer gets why a request is refused, nil when it is not.
func answerRequests(l *Listener, subject, queue string, most int, answer func(m *nats.Msg, refused error) []byte) (end func(), err error) {
	going := newGate(l.worker, most, schemas.Errorf(schemas.CodePoolExhausted, "worker %s carries out %d such requests already: try again", l.worker, most))
	reply := func(m *nats.Msg, refused error) {
		tenant, _, _ := l.conn.subjects.tokens(m.Subject)
		l.inboxes.respond(tenant, m, nil, answer(m, refused))
	}
	sub, err := l.conn.nc.QueueSubscribe(subject, queue, func(m *nats.Msg) {
		if refused := going.enter(func() { reply(m, nil) }); refused != nil {
			reply(m, refused)
		}
	})
	if err != nil {
		return nil, wrap(err, "subscribe to "+subject)
	}
	return func() {
		drain(l.conn, sub)
		going.close()
	}, nil
}
