package events

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// readTimeout bounds the wait of a read for its next message. A request that was in flight when the connection broke gets no
// answer.
const readTimeout = 5 * time.Second

// Bounds of one batch of events or messages, to limit its memory.
const (
	readBatch      = 64
	readBatchBytes = 8 << 20
)

// directRequest reads messages of a stream without a consumer: a stream has room for only a thousand consumers. Its form is
// JSApiMsgGetRequest of nats-server (ADR-31).
type directRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	NextBy   string `json:"next_by_subj,omitempty"`
	LastBy   string `json:"last_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// storedMsg is a message as a stream stores it.
type storedMsg struct {
	seq     uint64
	subject string
	header  nats.Header
	data    []byte
}

func storedFrom(m *nats.Msg) storedMsg {
	return storedMsg{seq: parseUint(ofServer(m.Header, headerSequence)), subject: ofServer(m.Header, headerSubject), header: m.Header, data: m.Data}
}

// ofServer returns a header that the server has added to a stored message. It comes after those of the message, which may have the same
// name.
func ofServer(h nats.Header, key string) string {
	if values := h[key]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// Status headers of the answers to a direct get.
const (
	statusNoMessages = "404"
	statusEndOfBatch = "204"
)

// streamReader reads what streams store, without a consumer.
type streamReader struct {
	// nc carries requests, records and events. bulk carries output, so that a control message never waits behind it.
	nc, bulk *nats.Conn
	refusals *refusals
	api      string // see Options.apiPrefix

	following atomic.Int64 // live readers
}

// request sends a request and waits for its answer. Errors: those of nats.go, permission_denied.
func (r *streamReader) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	return watched(ctx, r.refusals, m.Subject, func(ctx context.Context) (*nats.Msg, error) {
		return r.nc.RequestMsgWithContext(ctx, m)
	})
}

func (r *streamReader) directSubject(stream string) string { return r.api + "DIRECT.GET." + stream }

// getSubject is that of reads from a stream's leader.
func (r *streamReader) getSubject(stream string) string { return r.api + "STREAM.MSG.GET." + stream }

func (r *streamReader) infoSubject(stream string) string { return r.api + "STREAM.INFO." + stream }

// directLast reads the newest message on a subject, which may have wildcards. It returns nil when there is none. Errors:
// unavailable, deadline_exceeded, internal.
func (r *streamReader) directLast(ctx context.Context, stream, subject string) (*storedMsg, error) {
	body, err := json.Marshal(directRequest{LastBy: subject})
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a read of %s: %w", stream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := r.request(ctx, &nats.Msg{Subject: r.directSubject(stream), Data: body})
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, noStream(stream)
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

// errNoStream marks the error of a read from a stream that does not exist, or has no leader yet.
var errNoStream = errors.New("the stream has no responder")

func noStream(stream string) error {
	return schemas.Errorf(schemas.CodeUnavailable, "read %s: JetStream does not answer: start a worker to create the streams, or %s: %w", stream, enableJetStream, errNoStream)
}

// directGet reads a batch, empty when no message matches, and reports whether there are more messages. With an error it returns the
// messages that arrived before it, complete and in order. Errors: ctx's, unavailable, deadline_exceeded, internal.
func (r *streamReader) directGet(ctx context.Context, stream string, req directRequest) (out []storedMsg, more bool, err error) {
	d, err := r.directReader(stream)
	if err != nil {
		return nil, false, err
	}
	defer d.close()
	more, err = d.batch(ctx, req, func(m storedMsg) error {
		out = append(out, m)
		return nil
	})
	return out, more, err
}

// errBroken is the error of a batch of which messages are missing.
var errBroken = errors.New("the connection broke: a part of the answer is missing")

// directReader reads one batch after another.
type directReader struct {
	bulk            *nats.Conn
	refusals        *refusals
	stream, subject string // the stream's name, and where it answers
	sub             *nats.Subscription
}

func (r *streamReader) directReader(stream string) (*directReader, error) {
	// A whole batch may be in flight: the inbox of the calls would overflow.
	sub, err := r.bulk.SubscribeSync(r.bulk.NewInbox())
	if err != nil {
		return nil, wrap(err, "read "+stream)
	}
	return &directReader{bulk: r.bulk, refusals: r.refusals, stream: stream, subject: r.directSubject(stream), sub: sub}, nil
}

// close ends the subscription. On failure it ends with the connection.
func (r *directReader) close() { _ = r.sub.Unsubscribe() }

// batch passes each message to fn as it arrives. A connection that breaks meanwhile may lose a part of the batch and deliver the rest: each
// message, and the end, names the one before it. After an error the reader must be closed: the rest of the batch may still arrive.
func (r *directReader) batch(ctx context.Context, req directRequest, fn func(storedMsg) error) (more bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return false, schemas.Errorf(schemas.CodeInternal, "encode a read of %s: %w", r.stream, err)
	}
	ctx, done := r.refusals.watch(ctx, r.subject)
	defer done()
	if err := r.request(ctx, &nats.Msg{Subject: r.subject, Reply: r.sub.Subject, Data: body}); err != nil {
		return false, wrap(err, "read "+r.stream)
	}
	for last := uint64(0); ; {
		m, err := nextWithin(ctx, r.sub, readTimeout)
		if errors.Is(err, nats.ErrNoResponders) {
			return false, noStream(r.stream)
		}
		if err != nil {
			return false, wrap(refused(ctx, err), "read "+r.stream)
		}
		status := m.Header.Get("Status")
		if (status == "" || status == statusEndOfBatch) && parseUint(ofServer(m.Header, headerLastSequence)) != last {
			return false, wrap(errBroken, "read "+r.stream)
		}
		switch status {
		case "":
			stored := storedFrom(m)
			last = stored.seq
			if err := fn(stored); err != nil {
				return false, err
			}
		case statusNoMessages:
			return false, nil
		case statusEndOfBatch:
			return parseUint(m.Header.Get(headerPending)) > 0, nil
		default:
			return false, schemas.Errorf(schemas.CodeInternal, "read %s: %s %s", r.stream, m.Header.Get("Status"), m.Header.Get("Description"))
		}
	}
}

// request sends a request. While the connection is broken, it waits for it: the connection for output buffers nothing.
func (r *directReader) request(ctx context.Context, m *nats.Msg) error {
	nc := r.bulk
	err := nc.PublishMsg(m)
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
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

// nextWithin waits for the next message of a subscription until the timeout. Errors: ctx's, nats.ErrTimeout, those of nats.go.
func nextWithin(ctx context.Context, sub *nats.Subscription, timeout time.Duration) (*nats.Msg, error) {
	wait, cancel := context.WithTimeout(ctx, timeout)
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

// parseUint returns 0 for a header that is absent or not a number: no sequence is 0.
func parseUint(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
