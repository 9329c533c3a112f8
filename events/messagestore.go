package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// MessageStore stores the messages of conversations.
type MessageStore struct{ conn *Conn }

// SaveMessage stores a message once and returns its sequence in MSG. An existing message of this process and role stays as it is.
// A message that is too long, as text or as JSON, is cut, and its Truncated is set. Errors: invalid_argument, limit_exceeded,
// unavailable, deadline_exceeded.
func (s *MessageStore) SaveMessage(ctx context.Context, tenant string, m *schemas.Message) (seq uint64, err error) {
	if err := checkMessage(tenant, m); err != nil {
		return 0, err
	}
	c := s.conn
	body, err := encodeMessage(m, c.MaxPayload()-messageOverhead)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	subject := c.subjects.Message(tenant, m.Thread, m.Process, m.Role)
	ack, err := s.store(ctx, &nats.Msg{Subject: subject, Data: body})
	for errors.Is(err, jetstream.ErrNoStreamResponse) && sleep(ctx, noStreamWait) == nil {
		c.messages.Store(false) // the stream elects its leader, or was deleted
		ack, err = s.store(ctx, &nats.Msg{Subject: subject, Data: body})
	}
	if err == nil {
		return ack.Sequence, nil
	}
	cause := wrap(err, "save a message of thread "+m.Thread)
	if errors.Is(cause, schemas.ErrLimitExceeded) {
		return 0, schemas.Errorf(schemas.CodeLimitExceeded, "the stream MSG is full, and keeps what it has: enlarge it by --message-bytes, or let messages expire by --message-age: %w", cause)
	}
	if !errors.Is(cause, schemas.ErrConflict) {
		return 0, cause
	}
	// It is stored: the hook ran again, or an ack was lost and the library sent the message twice.
	existing, err := c.leaderSeq(ctx, c.names.msg, directRequest{LastBy: subject})
	if err != nil || existing == 0 {
		return 0, errors.Join(cause, err)
	}
	return existing, nil
}

// noStreamWait is how long a save waits for the stream before it tries again: until a message is saved, a killed worker loses it.
const noStreamWait = 100 * time.Millisecond

func (s *MessageStore) store(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	c := s.conn
	if err := c.needStream(ctx, &c.messages, c.messageConfig()); err != nil {
		return nil, err
	}
	return swap(ctx, func(ctx context.Context) (*jetstream.PubAck, error) {
		return c.js.PublishMsg(ctx, copyOf(m), jetstream.WithExpectLastSequencePerSubject(0))
	})
}

// messageOverhead is room for the subject and the headers of a stored message, in bytes.
const messageOverhead = 4 << 10

func checkMessage(tenant string, m *schemas.Message) error {
	for field, id := range map[string]string{"tenant": tenant, "thread": m.Thread, "process": m.Process} {
		if err := schemas.CheckID(field, id); err != nil {
			return err
		}
	}
	if m.Role != schemas.RoleUser && m.Role != schemas.RoleAgent {
		return schemas.Errorf(schemas.CodeInvalidArgument, "role: unknown %q: use user or agent", m.Role)
	}
	return nil
}

// encodeMessage encodes a message as MSG stores it, in at most limit bytes.
func encodeMessage(m *schemas.Message, limit int64) ([]byte, error) {
	stored := *m
	stored.Seq = 0
	stored.Text = strings.ToValidUTF8(stored.Text, "\uFFFD")
	if len(stored.Text) > schemas.MaxPromptBytes {
		stored.Text, stored.Truncated = truncateText(stored.Text, schemas.MaxPromptBytes), true
	}
	for {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // escaped, each < and > takes six bytes
		if err := enc.Encode(&stored); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "encode a message: %w", err)
		}
		if int64(b.Len()) <= limit {
			return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
		}
		if stored.Text == "" {
			return nil, schemas.Errorf(schemas.CodeTooLarge, "the message has %d bytes without its text: the limit is %d", b.Len(), limit)
		}
		stored.Text, stored.Truncated = truncateText(stored.Text, len(stored.Text)*3/4), true
	}
}

// truncateText returns at most the first n bytes of s, and never a part of a character.
func truncateText(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func decodeMessage(seq uint64, data []byte) (*schemas.Message, bool) {
	var m schemas.Message
	if err := json.Unmarshal(data, &m); err != nil || m.Role == "" {
		return nil, false
	}
	m.Seq = seq
	return &m, true
}
