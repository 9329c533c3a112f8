package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// SessionRequest says what session a thread is to have. Only Thread is required; the rest is a new session's.
type SessionRequest struct {
	// Thread is the conversation; see [schemas.ValidID].
	Thread string
	// Template is the recipe, and Provider the kind of sandbox. Default: the worker's. A session that is there already with
	// another one is a conflict.
	Template, Provider string
	// User is whom it is for, and Tags are labels to find it by.
	User string
	Tags map[string]string
	// IdleTimeout ends it when nothing ran for that long; MaxLifetime ends it whatever runs. Default: the template's.
	IdleTimeout, MaxLifetime time.Duration
	// Start makes the sandbox before CreateSession returns. Default: the first command does.
	Start bool
}

// Session is one session of a thread. Whatever is asked by it is asked of that very session: once it has ended, the answer is
// session_expired, also where the thread has another by then. Its methods may be called at the same time.
type Session struct {
	client *Client
	id     string
	thread string
}

// CreateSession gives a thread its session: the one it has, or a new one, which created tells. Of several callers at once one
// creates it. Errors: conflict where the thread has one of another template or provider, not_found for a template that no worker
// has, permission_denied, invalid_argument, unavailable, and with Start why the sandbox could not be made.
func (c *Client) CreateSession(ctx context.Context, req SessionRequest) (s *Session, created bool, err error) {
	info, created, err := c.create(ctx, req)
	if err != nil {
		return nil, created, err
	}
	return c.handle(info), created, nil
}

func (c *Client) handle(info *schemas.Session) *Session {
	return &Session{client: c, id: info.ID, thread: info.Thread}
}

func (c *Client) create(ctx context.Context, req SessionRequest) (*schemas.Session, bool, error) {
	place := schemas.PlaceRequest{
		Thread: req.Thread, Template: req.Template, Provider: req.Provider, User: req.User, Tags: req.Tags,
		IdleTimeoutMS: ceilMillis(req.IdleTimeout), MaxLifetimeMS: ceilMillis(req.MaxLifetime), Start: req.Start,
	}
	if err := schemas.CheckID("thread", req.Thread); err != nil {
		return nil, false, err
	}
	reply, err := c.conn.Place(ctx, c.tenant, place)
	if err != nil {
		return nil, reply != nil && reply.Created, err
	}
	s := reply.Session
	if s == nil {
		return nil, false, schemas.Errorf(schemas.CodeUnavailable, "worker %s is of a version that does not tell of sessions", reply.Worker)
	}
	if req.Start && s.State != schemas.SandboxRunning {
		// Another worker than the one that answered owns the thread.
		s, err = c.conn.StartSession(ctx, c.tenant, req.Thread, schemas.StartRequest{Session: s.ID})
	}
	return s, reply.Created, err
}

// Session is a handle on a thread's session. Errors: not_found, invalid_argument, unavailable.
func (c *Client) Session(ctx context.Context, thread string) (*Session, error) {
	info, err := c.SessionInfo(ctx, thread)
	if err != nil {
		return nil, err
	}
	return c.handle(info), nil
}

// SessionInfo reads a thread's session as it is kept. LastActivity, and Expires with it, may be 30 s, or a quarter of the idle
// timeout, behind. Errors: not_found, invalid_argument, unavailable.
func (c *Client) SessionInfo(ctx context.Context, thread string) (*schemas.Session, error) {
	if err := schemas.CheckID("thread", thread); err != nil {
		return nil, err
	}
	s, _, err := c.conn.Session(ctx, c.tenant, thread)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, schemas.Errorf(schemas.CodeNotFound, "thread %s has no session: it never had one, or it has ended", thread)
	}
	return s, err
}

// SessionQuery says which sessions to list. Empty fields match all.
type SessionQuery struct {
	// User, Template and State are the session's.
	User, Template string
	State          schemas.SandboxState
	// Tags are labels that it must have, with these values.
	Tags map[string]string
	// Limit is the most sessions to return. Default 1,000.
	Limit int
}

// maxListed is how many sessions a list has where nobody says.
const maxListed = 1000

// Sessions lists the tenant's sessions: those changed last come last. Errors: unavailable, deadline_exceeded.
func (c *Client) Sessions(ctx context.Context, q SessionQuery) ([]schemas.Session, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = maxListed
	}
	out := []schemas.Session{}
	full := errors.New("enough")
	err := c.conn.Sessions(ctx, c.tenant, func(s *schemas.Session) error {
		if !q.fits(s) {
			return nil
		}
		out = append(out, *s)
		if len(out) == limit {
			return full
		}
		return nil
	})
	if err != nil && !errors.Is(err, full) {
		return nil, err
	}
	// One that changes while it is read may be read twice.
	seen := make(map[string]bool, len(out))
	slices.Reverse(out)
	out = slices.DeleteFunc(out, func(s schemas.Session) bool {
		again := seen[s.ID]
		seen[s.ID] = true
		return again
	})
	slices.Reverse(out)
	return out, nil
}

func (q *SessionQuery) fits(s *schemas.Session) bool {
	if (q.User != "" && q.User != s.User) || (q.Template != "" && q.Template != s.Template) || (q.State != "" && q.State != s.State) {
		return false
	}
	for name, value := range q.Tags {
		if got, ok := s.Tags[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// StopOption changes how a session is stopped.
type StopOption func(*stopping)

type stopping struct {
	req       schemas.StopRequest
	missingOK bool
}

// StopGrace is the time between SIGTERM and SIGKILL for what runs. Default: the template's, 10 s.
func StopGrace(d time.Duration) StopOption {
	return func(s *stopping) {
		ms := ceilMillis(d)
		s.req.GraceMS = &ms
	}
}

// StopSnapshot pushes the workspace before the end. Where that fails the session stays, and the error says why.
func StopSnapshot() StopOption { return func(s *stopping) { s.req.Snapshot = true } }

// StopMissingOK makes it no error that there is no session.
func StopMissingOK() StopOption { return func(s *stopping) { s.missingOK = true } }

// StopSession ends a thread's session: what runs gets SIGTERM, the grace and SIGKILL, a sandbox that is just being made is waited
// for. It returns the session as it last was. Stopping at the same time from several places is one stop. The workspace's folder
// stays on the worker. Errors: not_found, unavailable, and with a snapshot why it could not be made.
func (c *Client) StopSession(ctx context.Context, thread string, opts ...StopOption) (*schemas.Session, error) {
	return c.stopSession(ctx, thread, "", opts)
}

// DeleteSession is StopSession, and removes the workspace's folder from the worker. What was pushed stays.
func (c *Client) DeleteSession(ctx context.Context, thread string, opts ...StopOption) (*schemas.Session, error) {
	return c.stopSession(ctx, thread, "", append(opts, func(s *stopping) { s.req.Delete = true }))
}

func (c *Client) stopSession(ctx context.Context, thread, id string, opts []StopOption) (*schemas.Session, error) {
	s := stopping{req: schemas.StopRequest{Session: id}}
	for _, o := range opts {
		o(&s)
	}
	var err error
	if id == "" {
		// By its id: an answer that gets lost must not have the next session stopped as well.
		var info *schemas.Session
		if info, err = c.SessionInfo(ctx, thread); err == nil {
			s.req.Session = info.ID
		}
	}
	var last *schemas.Session
	if err == nil {
		last, err = c.conn.StopSession(ctx, c.tenant, thread, s.req)
	}
	if s.req.Session != "" && (errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrSessionExpired)) {
		// Stopped already, by this call whose answer was lost or by another: the outcome is the same.
		if ended, readErr := c.conn.LastEnded(ctx, c.tenant, thread); readErr == nil && ended.ID == s.req.Session {
			return ended, nil
		}
	}
	if s.missingOK && errors.Is(err, schemas.ErrNotFound) {
		return nil, nil
	}
	return last, err
}

// RenewSession begins a session's idle time anew; an idle timeout that is not 0 replaces the session's. Errors: not_found,
// invalid_argument, unavailable.
func (c *Client) RenewSession(ctx context.Context, thread string, idleTimeout time.Duration) (*schemas.Session, error) {
	if err := schemas.CheckID("thread", thread); err != nil {
		return nil, err
	}
	return c.conn.RenewSession(ctx, c.tenant, thread, schemas.RenewRequest{IdleTimeoutMS: ceilMillis(idleTimeout)})
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// Thread is the session's thread.
func (s *Session) Thread() string { return s.thread }

// Info reads the session as it is kept. Errors: session_expired, unavailable.
func (s *Session) Info(ctx context.Context) (*schemas.Session, error) {
	info, err := s.client.SessionInfo(ctx, s.thread)
	if errors.Is(err, schemas.ErrNotFound) || (err == nil && info.ID != s.id) {
		return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended", s.id, s.thread)
	}
	return info, err
}

// Exec is [Client.Exec] in this session: its thread is filled in. Errors also: session_expired.
func (s *Session) Exec(ctx context.Context, req Request) (*schemas.Result, error) {
	req.Thread, req.Session = s.thread, s.id
	return s.client.Exec(ctx, req)
}

// ExecStream is [Client.ExecStream] in this session. Errors also: session_expired.
func (s *Session) ExecStream(ctx context.Context, req Request) (*Execution, error) {
	req.Thread, req.Session = s.thread, s.id
	return s.client.ExecStream(ctx, req)
}

// Renew is [Client.RenewSession]. Errors also: session_expired.
func (s *Session) Renew(ctx context.Context, idleTimeout time.Duration) (*schemas.Session, error) {
	info, err := s.client.conn.RenewSession(ctx, s.client.tenant, s.thread, schemas.RenewRequest{Session: s.id, IdleTimeoutMS: ceilMillis(idleTimeout)})
	return info, expired(err)
}

// Stop is [Client.StopSession] for this session alone. One that was stopped already is no error.
func (s *Session) Stop(ctx context.Context, opts ...StopOption) (*schemas.Session, error) {
	return s.client.stopSession(ctx, s.thread, s.id, opts)
}

// Delete is Stop, and removes the workspace's folder from the worker.
func (s *Session) Delete(ctx context.Context, opts ...StopOption) (*schemas.Session, error) {
	return s.client.stopSession(ctx, s.thread, s.id, append(opts, func(s *stopping) { s.req.Delete = true }))
}

// expired is a session that is not there, as its handle tells it.
func expired(err error) error {
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Errorf(schemas.CodeSessionExpired, "%w", err)
	}
	return err
}
