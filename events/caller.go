package events

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Caller is what a caller uses of a connection: it sends commands (see [Caller.NewCall]), controls processes and sessions, and reads.
// Its methods are safe for concurrent use.
type Caller struct{ Reader }

// Timeouts of requests to workers.
const (
	placeTimeout = 10 * time.Second
	startTimeout = 10 * time.Minute // to start a sandbox: its image and its workspace may have to be fetched
	// controlTimeout bounds a signal or a kill: a worker that died does not answer.
	controlTimeout = 10 * time.Second
	// sessionTimeout is how long an owner may take to answer a request about a session before the caller asks again and checks the
	// owner: one that is frozen or dead never answers.
	sessionTimeout = 5 * time.Second
	// sessionRetry is the wait while a thread changes its owner.
	sessionRetry = 250 * time.Millisecond
)

var (
	errNoResponder = errors.New("no worker is running")
	errNoAnswer    = errors.New("no answer within the timeout")
)

// Place asks the workers for the owner of a thread and its session, and creates both when they do not exist. Errors: unavailable
// without a worker, the worker's own, deadline_exceeded; those of StartSession. The reply may be set with an error.
func (c *Caller) Place(ctx context.Context, tenant string, req schemas.PlaceRequest) (*schemas.PlaceReply, error) {
	start := req.Start
	req.Start = false // a request of its own, which is repeated: a lost answer would be waited for as long as a start may take
	reply, err := c.place(ctx, tenant, req, false)
	if err != nil || !start || reply.Session == nil || reply.Session.State == schemas.SandboxRunning {
		return reply, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started, err := c.StartSession(ctx, tenant, req.Thread, schemas.StartRequest{Session: reply.Session.ID})
	if started != nil {
		reply.Session = started
	}
	return reply, err
}

// place is Place. With room, a worker takes the thread only if it has room for a command, and a request that no worker takes is declined.
func (c *Caller) place(ctx context.Context, tenant string, req schemas.PlaceRequest, room bool) (*schemas.PlaceReply, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode a place request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	m, err := c.conn.request(ctx, placeMsg(c.conn.subjects.API(tenant, placeVerb), body, room))
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "place thread %s: %w: start one with `sluice up` or `sluice worker`", req.Thread, errNoResponder)
	}
	if err != nil {
		return nil, wrap(err, "place thread "+req.Thread)
	}
	var r schemas.PlaceReply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "place thread %s: decode the reply: %w", req.Thread, err)
	}
	if r.Error != nil {
		return &r, r.Error
	}
	return &r, nil
}

// isDeclined reports that a worker did not take the thread: it is shutting down, is full, or lacks what the thread needs.
func isDeclined(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Details[schemas.DetailDeclined] != ""
}

// Signal sends a signal, such as "SIGINT", to the process group of a running process. Errors: not_found, invalid_argument,
// deadline_exceeded.
func (c *Caller) Signal(ctx context.Context, ref schemas.ProcessRef, req schemas.SignalRequest) error {
	return c.controlJSON(ctx, ref, VerbSignal, req)
}

// Kill ends the whole tree of a running process. It returns once the worker has begun; an event reports the end. Errors: not_found,
// deadline_exceeded.
func (c *Caller) Kill(ctx context.Context, ref schemas.ProcessRef, req schemas.KillRequest) error {
	return c.controlJSON(ctx, ref, VerbKill, req)
}

func (c *Caller) controlJSON(ctx context.Context, ref schemas.ProcessRef, verb Verb, req any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode %s: %w", verb, err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	return c.control(ctx, ref, verb, nil, body)
}

// WriteStdin sends a process at most [MaxStdinPiece] bytes of standard input, and waits until the process has taken them or ctx
// ends: a process may read slowly. The offset is the number of bytes that the writer sent before. A piece may be sent again. End closes
// the standard input after this piece. Errors: not_found when the process has ended or no longer reads, too_large, deadline_exceeded.
func (c *Caller) WriteStdin(ctx context.Context, ref schemas.ProcessRef, p schemas.StdinPiece) error {
	if len(p.Data) > MaxStdinPiece {
		return schemas.Errorf(schemas.CodeTooLarge, "a piece of standard input has %d bytes: the limit is %d", len(p.Data), MaxStdinPiece)
	}
	h := nats.Header{headerOffset: {strconv.FormatInt(p.Offset, 10)}}
	if p.Writer != "" {
		h.Set(headerWriter, p.Writer)
	}
	if p.End {
		h.Set(headerStdinEnd, "true")
	}
	return c.control(ctx, ref, VerbStdin, h, p.Data)
}

// Resize changes the size of the terminal of a running process. Errors: not_found, invalid_argument also for a process without a
// terminal, deadline_exceeded.
func (c *Caller) Resize(ctx context.Context, ref schemas.ProcessRef, size schemas.TerminalSize) error {
	return c.controlJSON(ctx, ref, VerbResize, size)
}

// control sends a control message and waits for the owner's answer. Errors: not_found when the thread has no owner, the owner's
// own, deadline_exceeded.
func (c *Caller) control(ctx context.Context, ref schemas.ProcessRef, verb Verb, header nats.Header, body []byte) error {
	m := &nats.Msg{Subject: c.conn.subjects.Control(ref.Tenant, ref.Thread, ref.Process, verb), Header: header, Data: body}
	reply, err := c.conn.request(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return schemas.Errorf(schemas.CodeNotFound, "no worker runs process %s of thread %s: the process has ended, or its worker is gone", ref.Process, ref.Thread)
	}
	if err != nil {
		return wrap(err, string(verb)+" process "+ref.Process)
	}
	if len(reply.Data) == 0 {
		return nil
	}
	var e schemas.Error
	if err := json.Unmarshal(reply.Data, &e); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "%s process %s: decode the answer: %w", verb, ref.Process, err)
	}
	return &e
}

// StopSession ends the session of a thread and returns its last state. It takes as long as the grace of its processes and the push
// of its workspace. Errors: not_found when the thread has no session, session_expired when it has another one, invalid_argument,
// ctx's, the worker's own.
func (c *Caller) StopSession(ctx context.Context, tenant, thread string, req schemas.StopRequest) (*schemas.Session, error) {
	return c.requestSession(ctx, tenant, thread, VerbStop, req)
}

// RenewSession extends the expiry of a session. Errors are those of StopSession.
func (c *Caller) RenewSession(ctx context.Context, tenant, thread string, req schemas.RenewRequest) (*schemas.Session, error) {
	return c.requestSession(ctx, tenant, thread, VerbRenew, req)
}

// StartSession creates the sandbox of a session that has none, or requests it. Errors are those of StopSession, and those of the sandbox's start.
func (c *Caller) StartSession(ctx context.Context, tenant, thread string, req schemas.StartRequest) (*schemas.Session, error) {
	return c.requestSession(ctx, tenant, thread, VerbStart, req)
}

// SyncWorkspace stores, restores, lists or compares versions of the workspace of a session. The reply has what was done, also with an error. Errors are
// those of StartSession, and the operation's.
func (c *Caller) SyncWorkspace(ctx context.Context, tenant, thread string, req schemas.SyncRequest) (*schemas.SessionReply, error) {
	reply, err := requestOwner(ctx, c, ownerRequest{tenant, thread, VerbSync, string(req.Op) + " the workspace of thread " + thread, req}, isReleasing)
	if err == nil && reply.Error != nil {
		return reply, reply.Error
	}
	return reply, err
}

// requestSession sends a request about a session to the owner of the thread; see requestOwner.
func (c *Caller) requestSession(ctx context.Context, tenant, thread string, verb Verb, req any) (*schemas.Session, error) {
	operation := string(verb) + " the session of thread " + thread
	answer, err := requestOwner(ctx, c, ownerRequest{tenant, thread, verb, operation, req}, isReleasing)
	switch {
	case err != nil:
		return nil, err
	case answer.Error != nil:
		return answer.Session, answer.Error
	}
	return answer.Session, nil
}

// ownerRequest is a request to the owner of a thread. operation names it in errors.
type ownerRequest struct {
	tenant, thread string
	verb           Verb
	operation      string
	body           any
}

// requestOwner sends a request to the owner of a thread. It places a thread without an owner first, and asks an owner that does not answer
// again until ctx ends or the thread has another owner. releasing says that the owner which answered is giving the thread up.
func requestOwner[R any](ctx context.Context, c *Caller, q ownerRequest, releasing func(*R) bool) (*R, error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode %s: %w", q.verb, err)
	}
	// One inbox for all: an answer that comes late, between two requests, is the answer too.
	sub, err := c.conn.nc.SubscribeSync(c.conn.nc.NewInbox())
	if err != nil {
		return nil, wrap(err, q.operation)
	}
	defer func() { _ = sub.Unsubscribe() }() // on failure it ends with the connection
	for unanswered := false; ; {
		answer, err := askOwner[R](ctx, c, sub, q, body)
		switch {
		case err == nil && !releasing(answer):
			return answer, nil
		case ctx.Err() != nil:
			return nil, wrap(ctx.Err(), q.operation)
		case err != nil && !errors.Is(err, errNoResponder) && !errors.Is(err, errNoAnswer):
			return nil, wrap(err, q.operation)
		}
		unanswered = unanswered || errors.Is(err, errNoAnswer)
		placed, err := c.Place(ctx, q.tenant, schemas.PlaceRequest{Thread: q.thread, Existing: true})
		switch {
		case ctx.Err() != nil:
			return nil, wrap(ctx.Err(), q.operation)
		case errors.Is(err, errNoResponder):
			return nil, schemas.Errorf(schemas.CodeUnavailable, "%s: %w: start one with `sluice up` or `sluice worker`", q.operation, errNoResponder)
		case isDeclined(err), isTransient(err):
		case err != nil && unanswered:
			wait, cancel := context.WithTimeout(ctx, sessionRetry)
			defer cancel()
			if late, lateErr := ownerAnswer[R](wait, sub); lateErr == nil && !releasing(late) {
				return late, nil
			}
			return nil, wrap(err, q.operation)
		case err != nil:
			return nil, wrap(err, q.operation)
		case placed.Worker != "" && answer == nil && placed.Session == nil:
			return nil, schemas.Errorf(schemas.CodeInternal, "%s: worker %s returned no session", q.operation, placed.Worker)
		}
		if err := sleep(ctx, sessionRetry); err != nil {
			return nil, wrap(err, q.operation)
		}
	}
}

// isReleasing reports that the owner which answered is giving up the thread.
func isReleasing(r *schemas.SessionReply) bool {
	return r.Session == nil && r.Error != nil && r.Error.Code == schemas.CodeUnavailable
}

// askOwner sends one request to the owner of a thread, and waits for an answer to any. Errors: errNoResponder, errNoAnswer, those of nats.go.
func askOwner[R any](ctx context.Context, c *Caller, sub *nats.Subscription, q ownerRequest, body []byte) (*R, error) {
	wait, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	subject := c.conn.subjects.Control(q.tenant, q.thread, noProcess, q.verb)
	r, err := watched(wait, c.conn.refusals, subject, func(ctx context.Context) (*R, error) {
		if err := c.conn.nc.PublishRequest(subject, sub.Subject, body); err != nil {
			return nil, err
		}
		return ownerAnswer[R](ctx, sub)
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errNoResponder
	case err != nil && ctx.Err() == nil && wait.Err() != nil:
		return nil, errNoAnswer
	}
	return r, err
}

// ownerAnswer waits for an answer to a request to an owner. Errors: those of nats.go, internal.
func ownerAnswer[R any](ctx context.Context, sub *nats.Subscription) (*R, error) {
	m, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	r := new(R)
	if err := json.Unmarshal(m.Data, r); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "decode the answer: %w", err)
	}
	return r, nil
}
