package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Ended passes the processes that match and have ended to fn, the last one first, until fn reports false. It leaves out those that run
// again, that ended at or after a sequence of EVT (0 for none), and that are cleaned up. Errors: unavailable, deadline_exceeded.
func (r *Reader) Ended(ctx context.Context, f Filter, before uint64, running []schemas.ProcessInfo, fn func(schemas.ProcessInfo) (more bool)) error {
	seen, through := make(map[string]bool), make(map[string]uint64)
	for _, p := range running {
		seen[p.Process] = true
	}
	// A list of all threads from the end of EVT meets each mark before the records that it hides.
	lookUp := f.Thread != "" || before > 0
	var failed error
	err := r.RecordsBefore(ctx, f, before, func(ev *schemas.Event) bool {
		if ev.Type == schemas.TypeProcessesCleaned {
			through[ev.Thread] = max(through[ev.Thread], cleanedThrough(ev))
			return true
		}
		if _, known := through[ev.Thread]; lookUp && !known {
			if through[ev.Thread], failed = r.cleaned(ctx, f.tenant(), ev.Thread); failed != nil {
				return false
			}
		}
		if ev.Seq <= through[ev.Thread] {
			return f.Thread == ""
		}
		newest := !seen[ev.Process]
		seen[ev.Process] = true // an earlier record is of an earlier run, or of its begin
		if newest && ev.Type.Terminal() {
			// A later version may have written it in another form.
			if p, err := schemas.EndedProcess(ev); err == nil && !p.AutoCleanup {
				return fn(p)
			}
		}
		return true
	})
	return cmp.Or(failed, err)
}

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

// cleanTimeout bounds a request to clean up, which reads the records of the thread since the last one.
const cleanTimeout = 30 * time.Second

// Clean cleans up the ended processes of a thread: lists leave them out from now on. It returns how many. Errors: unavailable without a
// worker, deadline_exceeded, permission_denied, pool_exhausted.
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
