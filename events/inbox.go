package events

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// inboxDepth is how many answers one call may have waiting. A command has two, and a third when it was forwarded.
const inboxDepth = 16

// inbox receives the answers to every call of a connection on one wildcard subscription: a subscription for each call would
// cost the server two changes of its routing table.
type inbox struct {
	prefix string
	sub    *nats.Subscription
	next   atomic.Uint64

	mu    sync.Mutex
	calls map[string]chan *nats.Msg
}

func newInbox(nc *nats.Conn) (*inbox, error) {
	b := &inbox{prefix: nc.NewInbox() + ".", calls: make(map[string]chan *nats.Msg)}
	sub, err := nc.Subscribe(b.prefix+"*", b.deliver)
	if err != nil {
		return nil, wrap(err, "subscribe to the inbox")
	}
	b.sub = sub
	return b, nil
}

func (b *inbox) deliver(m *nats.Msg) {
	b.mu.Lock()
	ch := b.calls[strings.TrimPrefix(m.Subject, b.prefix)]
	b.mu.Unlock()
	if ch == nil {
		return // the caller has gone: the durable record keeps what it missed
	}
	select {
	case ch <- m:
	default: // more answers than any owner sends: not to be waited for
	}
}

// open gives a call its own subject, a channel of the answers, and a function that ends it.
func (b *inbox) open() (subject string, answers <-chan *nats.Msg, done func()) {
	token := strconv.FormatUint(b.next.Add(1), 36)
	ch := make(chan *nats.Msg, inboxDepth)
	b.mu.Lock()
	b.calls[token] = ch
	b.mu.Unlock()
	return b.prefix + token, ch, func() {
		b.mu.Lock()
		delete(b.calls, token)
		b.mu.Unlock()
	}
}

// close is called as the connection goes: the subscription ends with it, should unsubscribing fail.
func (b *inbox) close() { _ = b.sub.Unsubscribe() }

// noResponders is the status header NATS answers with when nobody listens on a request's subject.
const noResponders = "503"

func isNoResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == noResponders
}

// Headers of commands and answers.
const (
	// headerInbox is where a command's events go. JetStream takes a message's reply subject for its own ack.
	headerInbox = "Sluice-Inbox"
	// headerForwarded names the worker that passes a durable command on, and waits to hear that it was accepted.
	headerForwarded = "Sluice-Forwarded"
	// headerType is an event's type, so that a reader may pass over the rest.
	headerType = "Sluice-Type"
	// headerWorker is the worker an event comes from.
	headerWorker = "Sluice-Worker"
	// headerReason says why a dead letter is one.
	headerReason = "Sluice-Reason"
)

// Answer sends an event to a caller's inbox. It returns once the event is handed to the connection; a caller that has gone
// is no error. Errors: unavailable.
func (c *Conn) Answer(to string, ev *schemas.Event) error {
	body, err := ev.Encode()
	if err != nil {
		return err
	}
	return c.answerRaw(to, ev, body)
}

func (c *Conn) answerRaw(to string, ev *schemas.Event, body []byte) error {
	if to == "" {
		return nil
	}
	m := &nats.Msg{Subject: to, Data: body, Header: nats.Header{headerType: {string(ev.Type)}}}
	return wrap(c.nc.PublishMsg(m), "answer the caller")
}
