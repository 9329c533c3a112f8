package events

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// The verbs about a session. Their subject has no process, and their answer is a schemas.SessionReply.
const (
	VerbStop  Verb = "stop"  // body: schemas.StopRequest
	VerbRenew Verb = "renew" // body: schemas.RenewRequest
	VerbStart Verb = "start" // body: schemas.StartRequest
)

// sessionControl takes a request about a session; false where it is about something else.
func (in *Inlet) sessionControl(m *nats.Msg, tenant, thread string, verb Verb) bool {
	reply := func(r schemas.SessionReply) {
		body, err := json.Marshal(r)
		if err != nil {
			return // strings and numbers alone: it cannot fail
		}
		_ = m.Respond(body) // a caller that has gone asks again
	}
	req := schemas.SessionControl{Tenant: tenant, Thread: thread}
	body := m.Data
	if len(body) == 0 {
		body = []byte("{}")
	}
	var err error
	switch verb {
	case VerbStop:
		req.Stop, err = schemas.DecodeStopRequest(body)
	case VerbRenew:
		req.Renew, err = schemas.DecodeRenewRequest(body)
	case VerbStart:
		req.Start, err = schemas.DecodeStartRequest(body)
	default:
		return false
	}
	if err != nil {
		reply(schemas.SessionReply{Error: schemas.AsError(err)})
		return true
	}
	handler, ctx := in.target()
	handler.HandleSession(ctx, req, reply)
	return true
}

// Timing of a request about a session.
const (
	// sessionPatience is how long an owner may take until it is asked again, and whether another one owns the thread by now: one
	// that is frozen, or that died since, never answers.
	sessionPatience = 5 * time.Second
	// sessionPause is the wait where the thread is between two owners.
	sessionPause = 250 * time.Millisecond
)

// StopSession ends a thread's session and returns it as it last was. It takes as long as what runs has grace, and its workspace
// needs to be pushed. Errors: not_found where the thread has none, session_expired where it is another one, invalid_argument,
// ctx's, the worker's own.
func (c *Conn) StopSession(ctx context.Context, tenant, thread string, req schemas.StopRequest) (*schemas.Session, error) {
	return c.askOwner(ctx, tenant, thread, VerbStop, req)
}

// RenewSession moves a session's expiry on. Errors are those of StopSession.
func (c *Conn) RenewSession(ctx context.Context, tenant, thread string, req schemas.RenewRequest) (*schemas.Session, error) {
	return c.askOwner(ctx, tenant, thread, VerbRenew, req)
}

// StartSession makes a session's sandbox where it has none. Errors are those of StopSession, and why it could not be made.
func (c *Conn) StartSession(ctx context.Context, tenant, thread string, req schemas.StartRequest) (*schemas.Session, error) {
	return c.askOwner(ctx, tenant, thread, VerbStart, req)
}

// askOwner asks a thread's owner about its session. A thread that nobody owns any more is placed first; an owner that does not
// answer is asked again, until ctx ends or another one has the thread.
func (c *Conn) askOwner(ctx context.Context, tenant, thread string, verb Verb, req any) (*schemas.Session, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "encode %s: %w", verb, err)
	}
	doing := string(verb) + " the session of thread " + thread
	for {
		answer, err := c.askOnce(ctx, tenant, thread, verb, body)
		switch {
		case err == nil && !asksAgain(answer):
			if answer.Error != nil {
				return answer.Session, answer.Error
			}
			return answer.Session, nil
		case ctx.Err() != nil:
			return nil, wrap(ctx.Err(), doing)
		case err != nil && !errors.Is(err, errNobody) && !errors.Is(err, errSilent):
			return nil, wrap(err, doing)
		}
		placed, err := c.Place(ctx, tenant, schemas.PlaceRequest{Thread: thread, Existing: true})
		switch {
		case ctx.Err() != nil:
			return nil, wrap(ctx.Err(), doing)
		case errors.Is(err, errNobody):
			return nil, schemas.Errorf(schemas.CodeUnavailable, "%s: no worker is there to do it", doing)
		case isDeclined(err), errors.Is(err, schemas.ErrDeadlineExceeded), errors.Is(err, schemas.ErrUnavailable):
		case err != nil:
			return nil, wrap(err, doing)
		case placed.Worker != "" && answer == nil && placed.Session == nil:
			return nil, schemas.Errorf(schemas.CodeInternal, "%s: worker %s told nothing of it", doing, placed.Worker)
		}
		if err := pause(ctx, sessionPause); err != nil {
			return nil, wrap(err, doing)
		}
	}
}

// asksAgain says that who answered was about to give the thread up.
func asksAgain(r *schemas.SessionReply) bool {
	return r.Session == nil && r.Error != nil && r.Error.Code == schemas.CodeUnavailable
}

// askOnce asks whoever listens. Errors: errNobody, errSilent.
func (c *Conn) askOnce(ctx context.Context, tenant, thread string, verb Verb, body []byte) (*schemas.SessionReply, error) {
	wait, cancel := context.WithTimeout(ctx, sessionPatience)
	defer cancel()
	m, err := c.nc.RequestWithContext(wait, c.Subjects.Control(tenant, thread, noProcess, verb), body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, errNobody
	case err != nil && ctx.Err() == nil && wait.Err() != nil:
		return nil, errSilent
	case err != nil:
		return nil, err
	}
	var r schemas.SessionReply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "unreadable answer: %w", err)
	}
	return &r, nil
}

// LastEnded reads how a thread's newest session that has ended was last. Errors: not_found, unavailable.
func (c *Conn) LastEnded(ctx context.Context, tenant, thread string) (*schemas.Session, error) {
	var newest *storedMsg
	for _, typ := range []schemas.EventType{schemas.TypeSessionTerminated, schemas.TypeSessionExpired} {
		m, err := c.directLast(ctx, c.names.evt, c.Subjects.Event(tenant, thread, "", typ))
		if err != nil {
			return nil, wrap(err, "read the end of the session of thread "+thread)
		}
		if m != nil && (newest == nil || m.seq > newest.seq) {
			newest = m
		}
	}
	if newest == nil {
		return nil, schemas.Errorf(schemas.CodeNotFound, "no session of thread %s is known to have ended", thread)
	}
	ev, err := schemas.DecodeEvent(newest.data)
	if err != nil {
		return nil, err
	}
	var s schemas.Session
	return &s, ev.Decode(&s)
}
