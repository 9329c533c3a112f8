package client

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// Sandbox is a handle on the session of a thread and on its sandbox. [Run] and [Sandboxes] make one.
//
// Wait, Start and what runs in the sandbox create the session and start its sandbox first, unless it runs, and WaitUntilComplete does when the
// handle has seen none; until one of them is called, a new handle makes no request. The start has a clock of its own, the template's start
// timeout: the timeout of a command begins when its process does. Status, GetStatus, Stop, Delete and Close start nothing.
//
// When the session has expired, a call makes it anew, and is repeated once; see [WithoutRenewal]. Errors of all that starts the sandbox:
// [ErrSandboxFailed] until Start is called, [ErrSandboxTerminated], [ErrSandboxNotRunning] after Stop; ctx's, and those of
// [Client.CreateSession]. Methods are safe for concurrent use.
type Sandbox struct {
	client *Client
	req    SessionRequest // of a session that it creates
	once   bool           // an expired session is not made anew
	main   *mainCommand   // nil for none
	group  *Sandboxes     // that stops it; nil for none
	turn   chan struct{}  // is held to create, start and stop
	view   view
}

// SandboxOption changes how a handle works.
type SandboxOption func(*Sandbox)

// WithoutRenewal has calls return [ErrSessionExpired] when the session has expired. Default: it is made anew, and the call is repeated
// once.
func WithoutRenewal() SandboxOption { return func(s *Sandbox) { s.once = true } }

// WithMain has the start run a command in the sandbox, whose end ends the session: the sandbox has completed then, with the exit code
// of the command. The command runs once: an expired session is not made anew. When its worker is shut down, the command is killed, and
// the session stays without it. Default: the sandbox idles until it is stopped. Of req, Thread and Session are not used, and Stdin
// must be nil.
func WithMain(req Request) SandboxOption {
	return func(s *Sandbox) {
		key := cmp.Or(req.Key, mainKey())
		req.Main = true
		s.main, s.once = &mainCommand{req: req, key: key}, true
	}
}

// Run creates the session of a thread and has its sandbox started; it does not wait until that runs. Without a Thread it is a new one.
// A thread that has a session keeps it. Errors: those of [Client.CreateSession].
func Run(ctx context.Context, c *Client, req SessionRequest, opts ...SandboxOption) (*Sandbox, error) {
	return newSandbox(c, req, opts).started(ctx)
}

// started starts a new handle, and leaves nothing behind when that fails.
func (s *Sandbox) started(ctx context.Context) (*Sandbox, error) {
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Attach returns a handle on the session that a thread has, and starts nothing. Close does not stop it. Errors: those of [Client.Session].
func Attach(ctx context.Context, c *Client, thread string, opts ...SandboxOption) (*Sandbox, error) {
	info, err := c.SessionInfo(ctx, thread)
	if err != nil {
		return nil, err
	}
	session := newSession(c, info)
	s := session.Sandbox(opts...)
	if err := s.look(ctx, session); err != nil { // the entry of a session is written after the event of a change
		return nil, err
	}
	return s, nil
}

func attached(c *Client, info *schemas.Session, opts []SandboxOption) *Sandbox {
	s := newSession(c, info).Sandbox(opts...)
	s.view.note(schemas.SandboxInfo{ID: info.Sandbox, State: info.State}, 0)
	return s
}

// Sandbox returns a handle on the sandbox of the session. It makes no request. Close does not stop the session.
func (s *Session) Sandbox(opts ...SandboxOption) *Sandbox {
	h := newSandbox(s.client, s.like, opts)
	h.view.enter(s, false)
	return h
}

// requestLike is the request for a session like another one.
func requestLike(s *schemas.Session) SessionRequest {
	return SessionRequest{
		Thread: s.Thread, Template: s.Template, Provider: s.Provider, Image: s.Image, User: s.User, Tags: s.Tags,
		IdleTimeout: time.Duration(s.IdleTimeoutMS) * time.Millisecond,
	}
}

func newSandbox(c *Client, req SessionRequest, opts []SandboxOption) *Sandbox {
	req.Thread, req.Start = cmp.Or(req.Thread, "t"+strings.ToLower(ulid.Make().String())), false
	s := &Sandbox{client: c, req: req, turn: make(chan struct{}, 1)}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Thread returns the thread.
func (s *Sandbox) Thread() string { return s.req.Thread }

// Session returns the session; nil before the handle has one.
func (s *Sandbox) Session() *Session {
	session, _ := s.view.now()
	return session
}

// Status returns the state of the sandbox as the handle last saw it, without a request; empty before its start.
func (s *Sandbox) Status() schemas.SandboxState { return s.view.state().State }

// GetStatus reads the state of the sandbox; empty before its start. Errors: unavailable, also for a session whose end is no longer on
// record.
func (s *Sandbox) GetStatus(ctx context.Context) (schemas.SandboxState, error) {
	session, over := s.view.now()
	if session == nil || over != nil {
		return s.Status(), nil //nolint:nilerr // an end is a state
	}
	err := s.look(ctx, session)
	if _, over = s.view.now(); over != nil || errors.Is(err, schemas.ErrSessionExpired) {
		err = nil
	}
	return s.Status(), err
}

// ExitCode returns the exit code of the main command, once it has ended the session and a call has noticed it.
func (s *Sandbox) ExitCode() (code int, ok bool) { return s.view.exitCode() }

// Start creates the session and has its sandbox started; it does not wait until that runs. After a failure it starts another one.
func (s *Sandbox) Start(ctx context.Context) error {
	return s.renewing(ctx, always, func() (*Session, error) { return s.begin(ctx, true) })
}

// Wait waits until the sandbox runs, or has completed.
func (s *Sandbox) Wait(ctx context.Context) error {
	err := s.renewing(ctx, always, func() (*Session, error) { return s.running(ctx, true) })
	if _, ok := s.ExitCode(); ok {
		return nil
	}
	return err
}

// WaitUntilComplete waits until the sandbox that the handle saw last has completed: its main command has ended it, or without one it ended by
// itself or was parked. That another one has followed it says so too. timeout begins when it runs; 0 is none. Errors also:
// ErrSandboxTerminated when it is stopped or its session expires meanwhile, ErrSandboxFailed when the main command was lost,
// deadline_exceeded.
func (s *Sandbox) WaitUntilComplete(ctx context.Context, timeout time.Duration) error {
	if s.main == nil && s.Status() == schemas.SandboxCompleted {
		return nil // to start another one would be to wait for that
	}
	var session *Session
	err := s.renewing(ctx, always, func() (_ *Session, err error) {
		session, err = s.running(ctx, s.main != nil) // a start that failed may not have begun the main command
		return session, err
	})
	last := s.view.state()
	if _, ended := s.ExitCode(); ended {
		return nil
	}
	if err != nil || (s.main == nil && last.State == schemas.SandboxCompleted) {
		return err
	}
	wait, cancel := ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		wait, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	err = s.await(wait, session, func(now schemas.SandboxInfo) bool {
		if now.ID != last.ID {
			return true // another one has followed
		}
		return now.State.Final() && (s.main == nil || now.State != schemas.SandboxCompleted) // the end of a session says how its main command did
	})
	_, over := s.view.now()
	switch _, ended := s.ExitCode(); {
	case ended:
		return nil
	case errors.Is(over, ErrSandboxFailed):
		return over
	case err != nil && wait.Err() != nil && ctx.Err() == nil:
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the sandbox of thread %s has not completed within %s", s.Thread(), timeout)
	case errors.Is(err, schemas.ErrSessionExpired):
		return terminated(err)
	case err == nil && (s.main != nil || s.Status() == schemas.SandboxTerminated):
		return terminated(schemas.Errorf(schemas.CodeSessionExpired, "sandbox %s of thread %s was ended", last.ID, s.Thread()))
	}
	return err
}

// Stop ends the session: SIGTERM for what runs, the grace of 10 s, SIGKILL; see [StopOption]. It waits for a start that is under way. A
// second Stop returns at once, and so does that of a handle without a session. Errors: those of [Client.StopSession] but for that of a
// session that has ended; with an error, the sandbox may run.
func (s *Sandbox) Stop(ctx context.Context, opts ...StopOption) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	return s.stop(ctx, opts)
}

// stop is Stop for a caller that holds the turn.
func (s *Sandbox) stop(ctx context.Context, opts []StopOption) error {
	session, over := s.view.now()
	var last *schemas.Session
	if session != nil && over == nil {
		var err error
		if last, err = session.Stop(ctx, opts...); err != nil {
			return err
		}
	}
	if over == nil {
		s.view.stopped(s.Thread(), last)
	}
	s.group.leave(s)
	return nil
}

// Delete is Stop, and deletes the folder of the workspace on the worker, also after Stop. Errors: also those of
// [Client.RemoveWorkspace] but for not_found.
func (s *Sandbox) Delete(ctx context.Context, opts ...StopOption) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	deletes := func(o *stopSettings) { o.req.Delete = true }
	if err := s.stop(ctx, append(opts, deletes)); err != nil {
		return err
	}
	owner := s.view.keeper()
	if owner == "" {
		return nil // there is no folder, or it went with the session
	}
	err := s.client.RemoveWorkspace(ctx, s.Thread(), owner, false)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	s.view.removed()
	return nil
}

// closeTimeout bounds Close.
const closeTimeout = time.Minute

// Close stops a session that this handle has created, within a minute, and leaves any other one alone. Its error is that of Stop: join
// it with the caller's own, as in
//
//	defer func() { err = errors.Join(err, s.Close()) }()
func (s *Sandbox) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if !s.view.owns() {
		s.group.leave(s)
		return nil
	}
	return s.stop(ctx, []StopOption{StopMissingOK()})
}

func (s *Sandbox) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Sandbox) unlock() { <-s.turn }

func always() bool { return true }
