package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// messageConfig is the stream MSG. Unlike the others it is made when the first message is saved: a worker that has no agents does
// without it, and starts the sooner.
func (c *Conn) messageConfig(t Topology) jetstream.StreamConfig {
	from, to := c.Subjects.republish("msg", "said")
	return jetstream.StreamConfig{
		Name: c.names.msg, Description: "messages of conversations",
		Subjects: []string{c.Subjects.AllMessages()}, Discard: jetstream.DiscardOld,
		MaxAge: t.MessageAge, MaxBytes: t.MessageBytes,
		Storage: jetstream.FileStorage, Replicas: t.Replicas, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: from, Destination: to},
	}
}

// SaveMessage stores a message once, and returns its place in MSG. One of this process and role that is there already is left as
// it is. What is too long, as text or as JSON, is cut, which Truncated says. Errors: invalid_argument, limit_exceeded,
// unavailable, deadline_exceeded.
func (c *Conn) SaveMessage(ctx context.Context, tenant string, m *schemas.Message) (seq uint64, err error) {
	if err := checkMessage(tenant, m); err != nil {
		return 0, err
	}
	body, err := encodeMessage(m, c.MaxPayload()-messageEnvelope)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := c.needStream(ctx, &c.messages, c.messageConfig(c.topology.withDefaults())); err != nil {
		return 0, err
	}
	subject := c.Subjects.Message(tenant, m.Thread, m.Process, m.Role)
	ack, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body}, jetstream.WithExpectLastSequencePerSubject(0))
	if err == nil {
		return ack.Sequence, nil
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		c.messages.Store(false) // somebody removed it
	}
	cause := wrap(err, "save a message of thread "+m.Thread)
	if !errors.Is(cause, schemas.ErrConflict) {
		return 0, cause
	}
	// It is there: an occasion was delivered again, or an ack was lost and the library sent it twice.
	there, err := c.directLast(ctx, c.names.msg, subject)
	if err != nil || there == nil {
		return 0, errors.Join(cause, err)
	}
	return there.seq, nil
}

// messageEnvelope is room for the subject and the headers of a stored message.
const messageEnvelope = 4 << 10

func checkMessage(tenant string, m *schemas.Message) error {
	for field, id := range map[string]string{"tenant": tenant, "thread": m.Thread, "process": m.Process} {
		if err := schemas.CheckID(field, id); err != nil {
			return err
		}
	}
	if m.Role != schemas.RoleUser && m.Role != schemas.RoleAgent {
		return schemas.Errorf(schemas.CodeInvalidArgument, "role: %q is neither user nor agent", m.Role)
	}
	return nil
}

// encodeMessage is a message as MSG keeps it, of at most limit bytes.
func encodeMessage(m *schemas.Message, limit int64) ([]byte, error) {
	kept := *m
	kept.Seq = 0
	kept.Text = strings.ToValidUTF8(kept.Text, "\uFFFD")
	if len(kept.Text) > schemas.MaxPromptBytes {
		kept.Text, kept.Truncated = cut(kept.Text, schemas.MaxPromptBytes), true
	}
	for {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // it would make six bytes of each < and >
		if err := enc.Encode(&kept); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "encode a message: %w", err)
		}
		if int64(b.Len()) <= limit {
			return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
		}
		if kept.Text == "" {
			return nil, schemas.Errorf(schemas.CodeTooLarge, "the message has %d bytes without its text, and the server takes %d", b.Len(), limit)
		}
		kept.Text, kept.Truncated = cut(kept.Text, len(kept.Text)*3/4), true
	}
}

// cut is the first bytes of s, up to the end of a character.
func cut(s string, most int) string {
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// Messages reads a thread's stored messages from a sequence of MSG on, in order. It returns the sequence after the last one
// read. Errors are fn's, unavailable or deadline_exceeded.
func (c *Conn) Messages(ctx context.Context, tenant, thread string, from uint64, fn func(*schemas.Message) error) (next uint64, err error) {
	next = max(from, 1)
	subject := c.Subjects.Messages(tenant, thread)
	for {
		msgs, more, err := c.directGet(ctx, c.names.msg, directRequest{Seq: next, NextBy: subject, Batch: readBatch, MaxBytes: readBatchBytes})
		for i := range msgs {
			next = msgs[i].seq + 1
			if m, ok := decodeMessage(msgs[i].seq, msgs[i].data); ok {
				if err := fn(m); err != nil {
					return next, err
				}
			}
		}
		if errors.Is(err, schemas.ErrUnavailable) && c.noMessages(ctx) {
			return next, nil
		}
		if err != nil || !more {
			return next, err
		}
	}
}

// noMessages says whether nobody has saved a message yet.
func (c *Conn) noMessages(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	_, err := c.js.Stream(ctx, c.names.msg)
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

func decodeMessage(seq uint64, data []byte) (*schemas.Message, bool) {
	var m schemas.Message
	if err := json.Unmarshal(data, &m); err != nil || m.Role == "" {
		return nil, false
	}
	m.Seq = seq
	return &m, true
}

// MessageFeed listens to a thread's messages as they are stored. It is for one goroutine.
type MessageFeed = live[*schemas.Message]

// ListenMessages begins to listen, also to a thread that has no message yet; from is the MSG sequence of the first one wanted.
// Errors: unavailable.
func (c *Conn) ListenMessages(tenant, thread string, from uint64) (*MessageFeed, error) {
	return listen(c, "listen to messages", c.Subjects.Said(tenant, thread), from, source[*schemas.Message]{
		read: func(ctx context.Context, from uint64, fn func(*schemas.Message) error) (uint64, error) {
			return c.Messages(ctx, tenant, thread, from, fn)
		},
		decode: decodeMessage,
	})
}
