package events

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// cleaned returns the sequence up to which the ended processes of a thread are cleaned up; 0 for none.
func (r *Reader) cleaned(ctx context.Context, tenant, thread string) (uint64, error) {
	m, err := r.conn.leaderLast(ctx, r.conn.names.evt, r.conn.subjects.Event(tenant, thread, "", schemas.TypeProcessesCleaned))
	if err != nil || m == nil {
		return 0, wrap(err, "read which processes of thread "+thread+" are cleaned up")
	}
	ev, ok := decodeEvent(m.seq, m.data)
	if !ok {
		return 0, nil
	}
	return cleanedThrough(ev), nil
}

func cleanedThrough(ev *schemas.Event) uint64 {
	var c schemas.ProcessesCleaned
	if ev.Decode(&c) != nil {
		return 0 // a later version may have written it in another form
	}
	return min(c.Through, ev.Seq)
}

// cleanVerb is the verb of requests to clean up processes.
const cleanVerb = "clean"

// maxCleans is how many requests to clean up a worker carries out at a time.
const maxCleans = 4

// subscribeCleans receives requests to clean up processes until end is called.
func subscribeCleans(l *Listener) (end func(), err error) {
	return answerRequests(l, l.conn.subjects.AnyAPI(cleanVerb), "workers", maxCleans, func(m *nats.Msg, refused error) []byte {
		reply := schemas.CleanReply{Error: schemas.AsError(refused)}
		if refused == nil {
			reply = l.handleClean(m)
		}
		body, _ := json.Marshal(reply) // it holds only strings and numbers
		return body
	})
}

func (l *Listener) handleClean(m *nats.Msg) schemas.CleanReply {
	tenant, _, _ := l.conn.subjects.tokens(m.Subject)
	req, err := schemas.DecodeCleanRequest(m.Data)
	if err := errors.Join(err, schemas.CheckID("tenant", tenant), l.conn.leased()); err != nil {
		return schemas.CleanReply{Error: schemas.AsError(err)}
	}
	handler, ctx := l.target()
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	if req.Process != "" {
		if err := deleteOutput(ctx, l.conn, tenant, req); err != nil {
			return schemas.CleanReply{Error: schemas.AsError(err)}
		}
		return schemas.CleanReply{Cleaned: 1}
	}
	var done schemas.ProcessesCleaned
	err = (&Reader{l.conn}).Ended(ctx, Filter{Tenant: tenant, Thread: req.Thread}, 0, nil, func(p schemas.ProcessInfo) bool {
		done.Count++
		done.Through = max(done.Through, p.Seq)
		return true
	})
	if err == nil && done.Count > 0 {
		err = handler.HandleCleaned(ctx, tenant, req.Thread, done)
	}
	if err != nil {
		return schemas.CleanReply{Error: schemas.AsError(err)}
	}
	return schemas.CleanReply{Cleaned: done.Count}
}

// deleteOutput deletes what LOG has of the output of a process that has ended. Errors: not_found, conflict, unavailable.
func deleteOutput(ctx context.Context, c *Conn, tenant string, req *schemas.CleanRequest) error {
	last, err := (&Reader{c}).Last(ctx, tenant, req.Thread, req.Process)
	if err != nil {
		return err
	}
	if !last.Type.Terminal() {
		return schemas.Errorf(schemas.CodeConflict, "process %s has not ended: its output can be deleted afterwards", req.Process)
	}
	log, err := c.bulkJS.Stream(ctx, c.names.log)
	for _, s := range schemas.Streams() {
		if err == nil {
			err = log.Purge(ctx, jetstream.WithPurgeSubject(c.subjects.Log(tenant, req.Thread, req.Process, s)))
		}
	}
	return wrap(err, "delete the output of process "+req.Process)
}

// cleanTimeout bounds a request to clean up, which reads the records of the thread since the last one.
const cleanTimeout = 30 * time.Second

// Clean cleans up the ended processes of a thread: lists leave them out from now on. It returns how many. For one process, it deletes its output
// instead. Errors: unavailable without a worker, deadline_exceeded, permission_denied, pool_exhausted; of one process not_found, and conflict
// while it runs.
func (c *Caller) Clean(ctx context.Context, tenant string, req schemas.CleanRequest) (int, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "encode a request to clean up: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	m, err := c.conn.request(ctx, &nats.Msg{Subject: c.conn.subjects.API(tenant, cleanVerb), Data: body})
	if errors.Is(err, nats.ErrNoResponders) {
		return 0, schemas.Errorf(schemas.CodeUnavailable, "clean up the processes of thread %s: no worker is running: start one with `sluice up`", req.Thread)
	}
	if err != nil {
		return 0, wrap(err, "clean up the processes of thread "+req.Thread)
	}
	var reply schemas.CleanReply
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return 0, schemas.Errorf(schemas.CodeInternal, "clean up the processes of thread %s: decode the answer: %w", req.Thread, err)
	}
	if reply.Error != nil {
		return 0, reply.Error
	}
	return reply.Cleaned, nil
}
