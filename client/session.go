package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// SessionRequest describes the session of a thread. Only Thread is required; the other fields are for a new session.
type SessionRequest struct {
	// Thread is the conversation; see [schemas.ValidID].
	Thread string
	// Template is the template and Provider the kind of sandbox. Default: the worker's. An existing session with another one is a
	// conflict.
	Template, Provider string
	// Image is the image of the sandbox, for a provider that uses images. Default: the template's, else the worker's.
	Image string
	// User is the owner, and Tags are labels to find the session by.
	User string
	Tags map[string]string
	// IdleTimeout ends the session when nothing ran for that long; MaxLifetime ends it even while something runs. Default: the
	// template's.
	IdleTimeout, MaxLifetime time.Duration
	// Start starts the sandbox before CreateSession returns. Default: the first command starts it.
	Start bool
	// Origin is that of [Request], for the events of the creation.
	schemas.Origin
}

// Session is a handle on one session of a thread. Once that session has ended, its methods return session_expired, also when the
// thread has another session. Its methods are safe for concurrent use.
type Session struct {
	client *Client
	id     string
	thread string
	like   SessionRequest // for a session like this one
}

// CreateSession returns the session of a thread, and creates it when there is none; created reports which. Of several concurrent
// callers one creates it. Errors: conflict when the session has another template or provider, not_found for a template that no worker
// has, permission_denied, invalid_argument, unavailable, and with Start those of the sandbox's start.
func (c *Client) CreateSession(ctx context.Context, req SessionRequest) (s *Session, created bool, err error) {
	info, created, err := createSession(ctx, c, req)
	if err != nil {
		return nil, created, err
	}
	return newSession(c, info), created, nil
}

func newSession(c *Client, info *schemas.Session) *Session {
	return &Session{client: c, id: info.ID, thread: info.Thread, like: requestLike(info)}
}

func createSession(ctx context.Context, c *Client, req SessionRequest) (*schemas.Session, bool, error) {
	place := schemas.PlaceRequest{
		Thread: req.Thread, Template: req.Template, Provider: req.Provider, Image: req.Image, User: req.User, Tags: req.Tags,
		IdleTimeoutMS: ceilMillis(req.IdleTimeout), MaxLifetimeMS: ceilMillis(req.MaxLifetime), Start: req.Start, Origin: req.Origin,
	}
	if err := schemas.CheckID("thread", req.Thread); err != nil {
		return nil, false, err
	}
	reply, err := c.place(ctx, place)
	if err != nil {
		return nil, reply != nil && reply.Created, err
	}
	if reply.Session == nil {
		return nil, false, schemas.Errorf(schemas.CodeUnavailable, "worker %s returned no session: upgrade it", reply.Worker)
	}
	return reply.Session, reply.Created, nil
}

// Session returns a handle on the session of a thread. Errors: not_found, invalid_argument, unavailable.
func (c *Client) Session(ctx context.Context, thread string) (*Session, error) {
	info, err := c.SessionInfo(ctx, thread)
	if err != nil {
		return nil, err
	}
	return newSession(c, info), nil
}

// SessionInfo reads the stored session of a thread. LastActivity and Expires may be 30 s, or a quarter of the idle timeout, behind.
// Errors: not_found, invalid_argument, unavailable.
func (c *Client) SessionInfo(ctx context.Context, thread string) (*schemas.Session, error) {
	if err := schemas.CheckID("thread", thread); err != nil {
		return nil, err
	}
	s, err := c.caller.Session(ctx, c.tenant, thread)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil, schemas.Errorf(schemas.CodeNotFound, "thread %s has no session: it never had one, or it has ended", thread)
	}
	return s, err
}

// SessionQuery selects sessions. Empty fields match all.
type SessionQuery struct {
	// User, Template and State are those of the session.
	User, Template string
	State          schemas.SandboxState
	// Tags are labels that the session must have, with these values.
	Tags map[string]string
	// Limit is the most sessions to return. Default 1,000.
	Limit int
}

// defaultListed is the default Limit of a list of sessions.
const defaultListed = 1000

// Sessions lists the sessions of the tenant, the last changed one last. Errors: unavailable, deadline_exceeded.
func (c *Client) Sessions(ctx context.Context, q SessionQuery) ([]schemas.Session, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultListed
	}
	out := []schemas.Session{}
	full := errors.New("limit reached")
	err := c.caller.Sessions(ctx, c.tenant, func(s *schemas.Session) error {
		if !q.matches(s) {
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
	// A session that changes during the read may be listed twice: keep the last.
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

func (q *SessionQuery) matches(s *schemas.Session) bool {
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
type StopOption func(*stopSettings)

type stopSettings struct {
	req       schemas.StopRequest
	missingOK bool
}

// StopGrace sets the time between SIGTERM and SIGKILL for running processes. Default: the template's, 10 s.
func StopGrace(d time.Duration) StopOption {
	return func(s *stopSettings) {
		ms := ceilMillis(d)
		s.req.GraceMS = &ms
	}
}

// StopSnapshot pushes the workspace before the end. When the push fails, the session stays and its error is returned.
func StopSnapshot() StopOption { return func(s *stopSettings) { s.req.Snapshot = true } }

// StopMissingOK ignores that the thread has no session, or not this one.
func StopMissingOK() StopOption { return func(s *stopSettings) { s.missingOK = true } }

// StopSession ends the session of a thread and returns its last state. Running processes get SIGTERM, the grace and SIGKILL; a
// sandbox that is starting is waited for. Concurrent calls stop it once. The folder of the workspace stays on the worker. Errors:
// not_found, unavailable, and with a snapshot those of the push.
func (c *Client) StopSession(ctx context.Context, thread string, opts ...StopOption) (*schemas.Session, error) {
	return stopSession(ctx, c, thread, "", opts)
}

// DeleteSession is StopSession, and deletes the folder of the workspace on the worker, also when another call has stopped the session.
// Pushed versions stay. Errors: also those of [Client.RemoveWorkspace] but for not_found.
func (c *Client) DeleteSession(ctx context.Context, thread string, opts ...StopOption) (*schemas.Session, error) {
	return stopSession(ctx, c, thread, "", append(opts, func(s *stopSettings) { s.req.Delete = true }))
}

func stopSession(ctx context.Context, c *Client, thread, id string, opts []StopOption) (*schemas.Session, error) {
	s := stopSettings{req: schemas.StopRequest{Session: id}}
	for _, o := range opts {
		o(&s)
	}
	var err error
	if id == "" {
		// Stop by id: after a lost answer, the retry must not stop the next session.
		var info *schemas.Session
		if info, err = c.SessionInfo(ctx, thread); err == nil {
			s.req.Session = info.ID
		}
	}
	var last *schemas.Session
	if err == nil {
		last, err = c.caller.StopSession(ctx, c.tenant, thread, s.req)
	}
	if s.req.Session != "" && (errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrSessionExpired)) {
		// It is stopped already, by this call whose answer was lost or by another one.
		if ended, readErr := c.caller.LastEnded(ctx, c.tenant, thread); readErr == nil && ended.ID == s.req.Session {
			return ended, s.removeFolder(ctx, c, ended)
		}
	}
	if s.missingOK && (errors.Is(err, schemas.ErrNotFound) || errors.Is(err, schemas.ErrSessionExpired)) {
		return nil, nil
	}
	return last, err
}

// removeFolder deletes the folder of a session that has ended, if that is asked for: who stopped it may have left it.
func (s *stopSettings) removeFolder(ctx context.Context, c *Client, ended *schemas.Session) error {
	if !s.req.Delete {
		return nil
	}
	if err := c.RemoveWorkspace(ctx, ended.Thread, ended.Owner, false); !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	return nil
}

// RenewSession restarts the idle time of a session. An idle timeout other than 0 replaces the session's. Errors: not_found,
// invalid_argument, unavailable.
func (c *Client) RenewSession(ctx context.Context, thread string, idleTimeout time.Duration) (*schemas.Session, error) {
	if err := schemas.CheckID("thread", thread); err != nil {
		return nil, err
	}
	return c.caller.RenewSession(ctx, c.tenant, thread, schemas.RenewRequest{IdleTimeoutMS: ceilMillis(idleTimeout)})
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// Thread returns the thread of the session.
func (s *Session) Thread() string { return s.thread }

// Info reads the stored session. Errors: session_expired, unavailable.
func (s *Session) Info(ctx context.Context) (*schemas.Session, error) {
	info, err := s.client.SessionInfo(ctx, s.thread)
	if errors.Is(err, schemas.ErrNotFound) || (err == nil && info.ID != s.id) {
		return nil, schemas.Errorf(schemas.CodeSessionExpired, "session %s of thread %s has ended", s.id, s.thread)
	}
	return info, err
}

// Exec is [Client.Exec] in this session; it sets the thread. Errors also: session_expired.
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
	info, err := s.client.caller.RenewSession(ctx, s.client.tenant, s.thread, schemas.RenewRequest{Session: s.id, IdleTimeoutMS: ceilMillis(idleTimeout)})
	return info, expired(err)
}

// Stop is [Client.StopSession] for this session alone. A session that has ended is not an error.
func (s *Session) Stop(ctx context.Context, opts ...StopOption) (*schemas.Session, error) {
	return stopSession(ctx, s.client, s.thread, s.id, opts)
}

// Delete is Stop, and deletes the folder of the workspace on the worker.
func (s *Session) Delete(ctx context.Context, opts ...StopOption) (*schemas.Session, error) {
	return stopSession(ctx, s.client, s.thread, s.id, append(opts, func(s *stopSettings) { s.req.Delete = true }))
}

// expired turns not_found into session_expired.
func expired(err error) error {
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Errorf(schemas.CodeSessionExpired, "%w", err)
	}
	return err
}

// Templates lists the templates of all workers, sorted by name. Errors: unavailable.
func (c *Client) Templates(ctx context.Context) ([]*schemas.Template, error) {
	return c.caller.Templates(ctx)
}

// Template reads the template of this name. Errors: invalid_argument, not_found, unavailable.
func (c *Client) Template(ctx context.Context, name string) (*schemas.Template, error) {
	return c.caller.Template(ctx, name)
}
