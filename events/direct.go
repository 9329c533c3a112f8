package events

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// readPatience is how long a read waits for its next message. A request that was on its way when the connection broke is
// answered by nobody: without a bound the reader would wait for ever.
const readPatience = 5 * time.Second

// directRequest asks a stream for messages without a consumer, of which a stream has room for a thousand only. Its form is
// nats-server's JSApiMsgGetRequest (ADR-31).
type directRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextBy   string `json:"next_by_subj,omitempty"`
	LastBy   string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// storedMsg is a message as a stream keeps it.
type storedMsg struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
}

func storedFrom(m *nats.Msg) storedMsg {
	return storedMsg{seq: parseUint(m.Header.Get(headerSequence)), subject: m.Header.Get(headerSubject), header: m.Header, data: m.Data}
}

// Headers of a direct get's answers.
const (
	headerSequence     = "Nats-Sequence"
	headerLastSequence = "Nats-Last-Sequence"
	headerSubject      = "Nats-Subject"
	headerPending      = "Nats-Num-Pending"
	statusNoMessages   = "404"
	statusEndOfBatch   = "204"
)

func directSubject(stream string) string { return "$JS.API.DIRECT.GET." + stream }

// directLast reads the newest message on a subject, which may have wildcards; nil when there is none. Errors: unavailable,
// deadline_exceeded, internal.
func (c *Conn) directLast(ctx context.Context, stream, subject string) (*storedMsg, error) {
	body, err := json.Marshal(directRequest{LastBy: subject})
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a read of %s: %w", stream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	m, err := c.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: directSubject(stream), Data: body})
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, unread(stream)
	}
	if err != nil {
		return nil, wrap(err, "read "+stream)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
		found := storedFrom(m)
		return &found, nil
	case statusNoMessages:
		return nil, nil
	default:
		return nil, schemas.Errorf(schemas.CodeInternal, "read %s: %s %s", stream, status, m.Header.Get("Description"))
	}
}

func unread(stream string) error {
	return schemas.Errorf(schemas.CodeUnavailable, "read %s: JetStream does not answer: is it enabled on this server, and has a worker set it up?", stream)
}

// directGet reads a batch and says whether there was more when it ended. No message that fits is an empty batch. With an
// error come the messages that arrived before it, which are whole and in order. Errors: ctx's, unavailable,
// deadline_exceeded, internal.
func (c *Conn) directGet(ctx context.Context, stream string, req directRequest) (out []storedMsg, more bool, err error) {
	r, err := c.directReader(stream)
	if err != nil {
		return nil, false, err
	}
	defer r.close()
	more, err = r.batch(ctx, req, func(m storedMsg) error {
		out = append(out, m)
		return nil
	})
	return out, more, err
}

// directReader reads batches one after the other.
type directReader struct {
	conn   *Conn
	stream string
	sub    *nats.Subscription
}

func (c *Conn) directReader(stream string) (*directReader, error) {
	// Up to a batch of answers is on its way at once: an inbox made for calls would overflow.
	sub, err := c.bulk.SubscribeSync(c.bulk.NewInbox())
	if err != nil {
		return nil, wrap(err, "read "+stream)
	}
	return &directReader{conn: c, stream: stream, sub: sub}, nil
}

// close ends the subscription; should that fail, it goes with the connection.
func (r *directReader) close() { _ = r.sub.Unsubscribe() }

// batch gives each message to fn as it arrives. A reader whose batch failed has to be closed: the rest of it may still come.
func (r *directReader) batch(ctx context.Context, req directRequest, fn func(storedMsg) error) (more bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return false, schemas.Errorf(schemas.CodeInternal, "encode a read of %s: %w", r.stream, err)
	}
	if err := r.ask(ctx, &nats.Msg{Subject: directSubject(r.stream), Reply: r.sub.Subject, Data: body}); err != nil {
		return false, wrap(err, "read "+r.stream)
	}
	for {
		m, err := nextWithin(ctx, r.sub, readPatience)
		if err != nil {
			return false, wrap(err, "read "+r.stream)
		}
		switch m.Header.Get("Status") {
		case "":
			if err := fn(storedFrom(m)); err != nil {
				return false, err
			}
		case statusNoMessages:
			return false, nil
		case statusEndOfBatch:
			return parseUint(m.Header.Get(headerPending)) > 0, nil
		case noResponders:
			return false, unread(r.stream)
		default:
			return false, schemas.Errorf(schemas.CodeInternal, "read %s: %s %s", r.stream, m.Header.Get("Status"), m.Header.Get("Description"))
		}
	}
}

// ask sends a request, once the connection is back where it is broken: this one keeps nothing to send it later.
func (r *directReader) ask(ctx context.Context, m *nats.Msg) error {
	nc := r.conn.bulk
	err := nc.PublishMsg(m)
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	for {
		if err := nc.PublishMsg(m); !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return err
		}
		select {
		case <-connected:
		case <-ctx.Done():
			return errors.Join(nats.ErrDisconnected, ctx.Err())
		}
	}
}

// nextWithin waits for a subscription's next message, but no longer than this. Its error is ctx's own, or
// nats.ErrTimeout.
func nextWithin(ctx context.Context, sub *nats.Subscription, patience time.Duration) (*nats.Msg, error) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := sub.NextMsgWithContext(wait)
	if err != nil && wait.Err() != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, nats.ErrTimeout
	}
	return m, err
}
