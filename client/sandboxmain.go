package client

import (
	"context"
	"errors"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// mainCommand is the main command of a handle's sandbox.
type mainCommand struct {
	req Request // but for its key

	mu   sync.Mutex
	key  string // under which it runs once
	sent bool   // with that key
}

func mainKey() string { return "main-" + ulid.Make().String() }

// send returns the request that starts the command in a session; earlier says that one with its key was sent before.
func (m *mainCommand) send(session *Session) (req Request, earlier bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req, earlier, m.sent = m.req, m.sent, true
	req.Key, req.Thread, req.Session = m.key, session.thread, session.id
	return req, earlier
}

// renew has the next request start the command anew.
func (m *mainCommand) renew() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.key, m.sent = mainKey(), false
}

// last reads the newest record of the command. Errors: not_found before it is accepted, unavailable.
func (m *mainCommand) last(ctx context.Context, session *Session) (*schemas.Event, error) {
	m.mu.Lock()
	key := m.key
	m.mu.Unlock()
	c := session.client
	return c.caller.Last(ctx, c.tenant, session.thread, c.ProcessID(session.thread, key))
}

// rejected reports that the command is on record as rejected: it never ran.
func (m *mainCommand) rejected(ctx context.Context, session *Session) bool {
	last, err := m.last(ctx, session)
	return err == nil && last.Type == schemas.TypeProcessRejected
}

// outlives reports that the command is not over with the sandbox whose failure is on record as failed, 0 for one that is known from an answer.
// One that arrives after the failure has its worker make another sandbox, and is rejected when that fails too: one that has ended since then
// ran in that other sandbox, whose states follow. There may be no command.
func (m *mainCommand) outlives(ctx context.Context, session *Session, failed uint64) bool {
	if m == nil {
		return false
	}
	last, err := m.last(ctx, session)
	switch {
	case err != nil:
		return !errors.Is(err, schemas.ErrNotFound)
	case last.Type == schemas.TypeProcessRejected:
		return false
	}
	return !last.Type.Terminal() || (failed > 0 && last.Seq > failed)
}

// startMain starts the main command, which runs once by its key. One that is rejected because its sandbox fails is no error: that
// failure is. One that is lost already has begun.
func (s *Sandbox) startMain(ctx context.Context, session *Session) error {
	if s.main == nil {
		return nil
	}
	if s.main.rejected(ctx, session) {
		s.main.renew()
	}
	for {
		req, earlier := s.main.send(session)
		_, err := s.client.StartProcess(ctx, req)
		switch {
		case schemas.CodeOf(err) == schemas.CodeLost:
			return nil
		case err == nil, errors.Is(err, schemas.ErrSessionExpired), ctx.Err() != nil:
			return err
		}
		if errors.Is(s.await(ctx, session, isStarted), ErrSandboxFailed) {
			return nil
		}
		// The command of an earlier start can be rejected with the sandbox of that start, when the next one runs already.
		if !earlier || !s.main.rejected(ctx, session) {
			return err
		}
		s.main.renew()
	}
}
