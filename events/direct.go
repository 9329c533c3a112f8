package events

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// directRequest asks a stream for messages without a consumer, of which a stream has room for a thousand only. Its form is
// nats-server's JSApiMsgGetRequest (ADR-31).
type directRequest struct {
	Seq       uint64   `json:"seq,omitempty"`
	NextBy    string   `json:"next_by_subj,omitempty"`
	Batch     int      `json:"batch,omitempty"`
	MaxBytes  int      `json:"max_bytes,omitempty"`
	UpToSeq   uint64   `json:"up_to_seq,omitempty"`
	MultiLast []string `json:"multi_last,omitempty"`
}

// storedMsg is a message as a stream keeps it.
type storedMsg struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
}

// Headers of a direct get's answers.
const (
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerSubject      = "Nats-Subject"
	statusNoMessages   = "404"
	statusEndOfBatch   = "204"
)

// directGet reads a batch. No message that fits is an empty batch. Errors: unavailable, deadline_exceeded, internal.
func (c *Conn) directGet(ctx context.Context, stream string, req directRequest) ([]storedMsg, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a read of %s: %w", stream, err)
	}
	// Up to a batch of answers is on its way at once: an inbox made for calls would overflow.
	sub, err := c.bulk.SubscribeSync(c.bulk.NewInbox())
	if err != nil {
		return nil, wrap(err, "read "+stream)
	}
	// The subscription has served its purpose; should this fail, it goes with the connection.
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.bulk.PublishMsg(&nats.Msg{Subject: "$JS.API.DIRECT.GET." + stream, Reply: sub.Subject, Data: body}); err != nil {
		return nil, wrap(err, "read "+stream)
	}
	var out []storedMsg
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, wrap(err, "read "+stream)
		}
		switch m.Header.Get("Status") {
		case "":
			out = append(out, storedMsg{seq: parseUint(m.Header.Get(headerSequence)), subject: m.Header.Get(headerSubject), header: m.Header, data: m.Data})
		case statusNoMessages, statusEndOfBatch:
			return out, nil
		case noResponders:
			return nil, schemas.Errorf(schemas.CodeUnavailable, "read %s: JetStream does not answer: is it enabled on this server, and has a worker set it up?", stream)
		default:
			return nil, schemas.Errorf(schemas.CodeInternal, "read %s: %s %s", stream, m.Header.Get("Status"), m.Header.Get("Description"))
		}
	}
}
