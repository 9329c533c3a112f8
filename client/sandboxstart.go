package client

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// do calls f once the sandbox runs, or has completed: then f's own request starts another one. When the session has expired, and may
// says that f can be repeated, it does so once with a new session.
func (s *Sandbox) do(ctx context.Context, may func() bool, f func(*Session) error) error {
	return s.renewing(ctx, may, func() (*Session, error) {
		session, err := s.running(ctx, false)
		if err == nil {
			err = f(session)
		}
		return session, err
	})
}

// renewing calls f, and once more with a new session when the session of its result has expired.
func (s *Sandbox) renewing(ctx context.Context, may func() bool, f func() (*Session, error)) error {
	for repeated := false; ; repeated = true {
		session, err := f()
		if session == nil || !errors.Is(err, schemas.ErrSessionExpired) {
			return err
		}
		if over := s.whyOver(ctx, session); over != nil {
			return over
		}
		if repeated || s.once || !may() {
			return err
		}
		s.view.expire(session)
	}
}

// begin creates the session, and requests its sandbox unless one was requested that has not ended, or has failed; again requests it in
// any case.
func (s *Sandbox) begin(ctx context.Context, again bool) (*Session, error) {
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	defer s.unlock()
	session, over := s.view.now()
	if over != nil {
		return nil, over
	}
	if session == nil {
		made, created, err := s.client.CreateSession(ctx, s.req)
		if err != nil {
			return nil, err
		}
		s.view.enter(made, created)
		session = made
	}
	switch state := s.Status(); {
	case again, state == "", state == schemas.SandboxCompleted, state == schemas.SandboxTerminated:
		if err := s.request(ctx, session); err != nil {
			return session, err
		}
		return session, s.startMain(ctx, session)
	}
	return session, nil
}

// request has the sandbox of a session started, unless it runs. Errors: session_expired, those of the owner.
func (s *Sandbox) request(ctx context.Context, session *Session) error {
	now, err := s.client.caller.StartSession(ctx, s.client.tenant, session.thread, schemas.StartRequest{Session: session.id, NoWait: true})
	if err != nil {
		return expired(err)
	}
	s.view.note(schemas.SandboxInfo{ID: now.Sandbox, State: now.State}, 0)
	return nil
}

// running starts the sandbox and returns the session once it runs, or has completed; sure also requests one that ran as last seen. Errors:
// also ErrSandboxFailed.
func (s *Sandbox) running(ctx context.Context, sure bool) (*Session, error) {
	session, err := s.begin(ctx, sure && s.Status() == schemas.SandboxRunning)
	if err != nil || s.Status() == schemas.SandboxRunning {
		return session, err
	}
	// One that was terminated is the end of the session, or its worker shuts down and another one makes the next.
	return session, s.await(ctx, session, isStarted)
}

// isStarted reports that the start of a sandbox is over.
func isStarted(now schemas.SandboxInfo) bool {
	return now.State == schemas.SandboxRunning || now.State == schemas.SandboxCompleted || now.State == schemas.SandboxFailed
}

// askAgain is how long a start may show no progress before it is requested again: its worker may have died.
const askAgain = 5 * time.Second

// await waits until the sandbox of a session is as wanted. Errors: ErrSandboxFailed, session_expired, ctx's.
func (s *Sandbox) await(ctx context.Context, session *Session, wanted func(schemas.SandboxInfo) bool) error {
	asked, seen := time.Now(), s.Status()
	err := s.client.caller.WatchThread(ctx, s.client.tenant, session.thread, func() (bool, error) {
		err := s.look(ctx, session) // an error that passes, such as while NATS is away, is no progress
		now, seq := s.view.newest()
		if schemas.CodeOf(err).Final() {
			return true, err
		}
		if err == nil && wanted(now) && (now.State != schemas.SandboxFailed || !s.main.outlives(ctx, session, seq)) {
			return true, nil
		}
		if now.State != seen || now.State == schemas.SandboxRunning { // what runs is not started, nor one after it
			asked, seen = time.Now(), now.State
		}
		if time.Since(asked) < askAgain {
			return false, nil
		}
		asked = time.Now()
		err = s.request(ctx, session)
		if !schemas.CodeOf(err).Final() {
			err = nil
		}
		return err != nil, err
	})
	if err == nil && s.Status() == schemas.SandboxFailed {
		err = s.view.failure(session.thread)
	}
	return err
}

// look reads the state of a session and its sandbox. Errors: session_expired, unavailable.
func (s *Sandbox) look(ctx context.Context, session *Session) error {
	caller, tenant := s.client.caller, s.client.tenant
	ev, err := caller.LastSandbox(ctx, tenant, session.thread)
	reported := err == nil && ev.Session == session.id
	switch {
	case reported:
		var info schemas.SandboxInfo
		if err := ev.Decode(&info); err != nil {
			return err
		}
		s.view.note(info, ev.Seq)
	case err != nil && !errors.Is(err, schemas.ErrNotFound):
		return err
	}
	stored, err := session.Info(ctx)
	if err == nil && !reported && stored.Sandbox != "" {
		s.view.note(schemas.SandboxInfo{ID: stored.Sandbox, State: stored.State}, 0)
	}
	if !errors.Is(err, schemas.ErrSessionExpired) {
		return err
	}
	if end, readErr := caller.LastEnd(ctx, tenant, session.thread); readErr == nil && end.Session == session.id {
		s.view.end(session, end)
		return err
	}
	return schemas.Errorf(schemas.CodeUnavailable, "the end of session %s of thread %s is not on record", session.id, session.thread)
}

// endTimeout is how long the end of a session may take to be on record. One whose record has expired counts as expired.
const endTimeout = 30 * time.Second

// whyOver finds out how a session ended, and returns why no call can succeed any more: a request has ended it. It returns nil when the
// session has expired.
func (s *Sandbox) whyOver(ctx context.Context, session *Session) error {
	if _, over := s.view.now(); over != nil {
		return over
	}
	wait, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := s.client.caller.WatchThread(wait, s.client.tenant, session.thread, func() (bool, error) {
		end, err := s.client.caller.LastEnd(wait, s.client.tenant, session.thread)
		if err != nil || end.Session != session.id {
			return false, nil //nolint:nilerr // it is read again
		}
		s.view.end(session, end)
		return true, nil
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	_, over := s.view.now()
	return over
}
