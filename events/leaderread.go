package events

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// leaderTry is how long the leader of a stream may take to answer before it is asked again: while there is none, a request has no answer.
const leaderTry = time.Second

// leaderTimeout bounds all tries of one read. A leader whose disk stalls answers nothing until it is done: a store holds its lock while it
// syncs.
const leaderTimeout = 10 * time.Second

// answered sends a request, again while it has no answer, and returns the first answer: a leader that was just lost, or is not elected
// yet, gives none, and the next one answers at once. A busy one answers late, and its answer to an earlier request counts. The waits double:
// a leader that takes longer than leaderTry for each answer would get more requests than it answers, for ever. The request may arrive
// more than once. request is called concurrently.
func answered[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer)
	tries, cancel := context.WithCancel(ctx)
	var pending sync.WaitGroup
	defer pending.Wait()
	defer cancel()
	for wait := leaderTry; ; wait *= 2 {
		pending.Go(func() {
			v, err := request(tries)
			select {
			case answers <- answer{v, err}:
			case <-tries.Done():
			}
		})
		select {
		case a := <-answers:
			if a.err == nil || ctx.Err() != nil || codeFor(a.err) != schemas.CodeDeadlineExceeded {
				return a.v, a.err
			}
		case <-time.After(wait):
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}

// leaderLast reads the newest message on a subject as leaderGet does.
func (r *streamReader) leaderLast(ctx context.Context, stream, subject string) (*storedMsg, error) {
	return r.leaderGet(ctx, stream, directRequest{LastBy: subject})
}

// leaderSeq returns the sequence of the message that leaderGet reads, 0 for none.
func (r *streamReader) leaderSeq(ctx context.Context, stream string, req directRequest) (uint64, error) {
	m, err := r.leaderGet(ctx, stream, req)
	if m == nil {
		return 0, err
	}
	return m.seq, nil
}

// leaderReply is the answer to a request for a message; see JSApiMsgGetResponse of nats-server.
type leaderReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Header  []byte `json:"hdrs"`
		Data    []byte `json:"data"`
		Time    string `json:"time"` // of the store
	} `json:"message"`
}

// askLeader sends one request for a message. Errors: those of nats.go, internal.
func (r *streamReader) askLeader(ctx context.Context, stream string, body []byte) (*leaderReply, error) {
	m, err := r.request(ctx, &nats.Msg{Subject: r.getSubject(stream), Data: body})
	if err != nil {
		return nil, err
	}
	reply := new(leaderReply)
	if err := json.Unmarshal(m.Data, reply); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "decode the answer: %w", err)
	}
	return reply, nil
}

// leaderGet reads the message that a request selects from the leader of a stream. A direct get may be answered by a replica that is
// behind. The leader may be one that was frozen and has not seen its successor: a decision needs a write as well. It returns nil when
// there is no message. Errors: unavailable, deadline_exceeded, internal.
func (r *streamReader) leaderGet(ctx context.Context, stream string, req directRequest) (*storedMsg, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a read of %s: %w", stream, err)
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	var reply *leaderReply
	for reply == nil {
		reply, err = answered(ctx, func(ctx context.Context) (*leaderReply, error) { return r.askLeader(ctx, stream, body) })
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, noStream(stream)
		case err != nil:
			return nil, wrap(err, "read "+stream)
		case reply.Error != nil && reply.Error.ErrorCode == errNoLeader && sleep(ctx, lagWait) == nil:
			reply = nil // any server answers so that does not know the leader
		}
	}
	switch {
	case reply.Error != nil && reply.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case reply.Error != nil && reply.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return nil, noStream(stream)
	case reply.Error != nil:
		return nil, wrap(reply.Error, "read "+stream)
	case reply.Message == nil:
		return nil, schemas.Errorf(schemas.CodeInternal, "read %s: the answer has no message", stream)
	}
	found := &storedMsg{seq: reply.Message.Seq, subject: reply.Message.Subject, header: make(nats.Header), data: reply.Message.Data}
	if len(reply.Message.Header) > 0 {
		if found.header, err = nats.DecodeHeadersMsg(reply.Message.Header); err != nil {
			return nil, schemas.Errorf(schemas.CodeInternal, "read %s: decode the headers: %w", stream, err)
		}
	}
	found.header.Set(headerTimestamp, reply.Message.Time) // as a direct get does
	return found, nil
}

// How long a read waits for a replica that lags behind, and the time between two tries.
const (
	lagTimeout = 5 * time.Second
	lagWait    = 20 * time.Millisecond
)

// readUntil calls read, which reads what a replica has on a subject and returns the next sequence to read, until it has read everything
// up to seen, or with 0 everything that the stream has at the first call. Any replica answers a read, and may lag behind: the leader
// decides what is there. Errors: read's, unavailable, deadline_exceeded.
func (r *streamReader) readUntil(ctx context.Context, stream, subject string, seen uint64, read func() (next uint64, err error)) error {
	for begin, at := time.Now(), uint64(0); ; {
		next, err := read()
		if err != nil || (seen > 0 && next > seen) {
			return err
		}
		stored, err := r.leaderSeq(ctx, stream, directRequest{Seq: next, NextBy: subject})
		if err != nil || stored == 0 || (seen > 0 && stored > seen) {
			return err
		}
		if seen == 0 { // a stream that is written to has no end
			if seen, err = r.leaderSeq(ctx, stream, directRequest{LastBy: ">"}); err != nil {
				return err
			}
		}
		if next > at {
			begin, at = time.Now(), next
		}
		if time.Since(begin) > lagTimeout {
			return schemas.Errorf(schemas.CodeUnavailable, "read %s: a replica lags behind the leader by more than %s", stream, lagTimeout)
		}
		if err := sleep(ctx, lagWait); err != nil {
			return err
		}
	}
}

// kvSubject is the subject of a key in the stream of its bucket.
func kvSubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// kvWriteSubject is where a write to a key is published: a leaf node passes it on to another domain below that one's prefix alone.
func (r *streamReader) kvWriteSubject(bucket, key string) string {
	if r.api == jetstream.DefaultAPIPrefix {
		return kvSubject(bucket, key)
	}
	return r.api + kvSubject(bucket, key)
}

// kvStream is the stream of a bucket.
func kvStream(bucket string) string { return "KV_" + bucket }

// headerKVOperation marks a message of a bucket as the deletion of its key; see ADR-8 of NATS.
const headerKVOperation = "KV-Operation"

// kvDeleted reports whether a message of a bucket says that its key is deleted: by a client, or by the server's limits.
func kvDeleted(m *storedMsg) bool {
	return m == nil || m.header.Get(headerKVOperation) != "" || m.header.Get(jetstream.MarkerReasonHeader) != ""
}

// leaseHolder reads the incarnation that has the lease of a worker id, empty for none, and the sequence of the key's last message,
// 0 for none. Errors: those of leaderLast.
func (c *Conn) leaseHolder(ctx context.Context, worker string) (incarnation string, last uint64, err error) {
	m, err := c.leaderLast(ctx, kvStream(c.names.leases), kvSubject(c.names.leases, worker))
	if err != nil || m == nil {
		return "", 0, err
	}
	if kvDeleted(m) {
		return "", m.seq, nil
	}
	return string(m.data), m.seq, nil
}
