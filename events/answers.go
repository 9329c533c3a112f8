package events

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// inboxDepth is how many undelivered answers one call may have. A command has two, a third when it was forwarded, and one each time
// that what it waits for changes.
const inboxDepth = 16

// inbox receives the answers to all calls of a connection on one wildcard subscription. A subscription per call would change the
// server's routing table twice per command.
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
		return // the call is closed
	}
	select {
	case ch <- m:
	default: // no owner sends so many answers: drop, do not block
	}
}

// open returns the subject and the answers of a new call, and a function that ends it.
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

// close ends the subscription. On failure it ends with the connection.
func (b *inbox) close() { _ = b.sub.Unsubscribe() }
