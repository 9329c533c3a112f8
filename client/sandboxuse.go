package client

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// Exec is [Client.Exec] in the sandbox. A command is repeated in a new session only when nothing of its Stdin was read.
func (s *Sandbox) Exec(ctx context.Context, req Request) (r *schemas.Result, err error) {
	quiet, unread := unreadInput(req)
	quiet.OnComplete, quiet.OnError = nil, nil // they are called once
	err = s.do(ctx, unread, func(session *Session) error {
		r, err = session.Exec(ctx, quiet)
		return err
	})
	req.report(r, err)
	return r, err
}

// ExecStream is [Client.ExecStream] in the sandbox.
func (s *Sandbox) ExecStream(ctx context.Context, req Request) (x *Execution, err error) {
	req, unread := unreadInput(req)
	err = s.do(ctx, unread, func(session *Session) error {
		x, err = session.ExecStream(ctx, req)
		return err
	})
	return x, err
}

// StartProcess is [Client.StartProcess] in the sandbox.
func (s *Sandbox) StartProcess(ctx context.Context, req Request) (p *Process, err error) {
	err = s.do(ctx, always, func(session *Session) error {
		req.Thread, req.Session = session.thread, session.id
		p, err = s.client.StartProcess(ctx, req)
		return err
	})
	return p, err
}

// Message is [Client.Message] in the sandbox.
func (s *Sandbox) Message(ctx context.Context, p Prompt) (r *schemas.Result, err error) {
	err = s.do(ctx, always, func(session *Session) error {
		p.Thread, p.Session = session.thread, session.id
		r, err = s.client.Message(ctx, p)
		return err
	})
	return r, err
}

// MessageStream is [Client.MessageStream] in the sandbox.
func (s *Sandbox) MessageStream(ctx context.Context, p Prompt) (x *Execution, err error) {
	err = s.do(ctx, always, func(session *Session) error {
		p.Thread, p.Session = session.thread, session.id
		x, err = s.client.MessageStream(ctx, p)
		return err
	})
	return x, err
}

// Files returns the files of the workspace. It makes no request; each method of them starts the sandbox.
func (s *Sandbox) Files() *Files {
	return &Files{client: s.client, sandbox: s, place: schemas.PlaceRequest{Thread: s.Thread(), Existing: true}}
}

// Services returns the services of the thread. It makes no request. Start of them starts the sandbox; the provider, the image and the
// template of its request are not used.
func (s *Sandbox) Services() *Services {
	return &Services{client: s.client, thread: s.Thread(), sandbox: s}
}

// Forward is [Client.Forward] to the sandbox.
func (s *Sandbox) Forward(ctx context.Context, port int, conn net.Conn) error {
	if err := s.Wait(ctx); err != nil {
		_ = conn.Close()
		return err
	}
	return s.client.Forward(ctx, s.Thread(), port, conn)
}

// Processes is [Client.Processes] of the thread. It does not start the sandbox.
func (s *Sandbox) Processes(ctx context.Context, q ProcessQuery) ([]schemas.ProcessInfo, error) {
	q.Thread = s.Thread()
	return s.client.Processes(ctx, q)
}

// KillAll is [Client.KillAll] of the thread. It does not start the sandbox.
func (s *Sandbox) KillAll(ctx context.Context, grace time.Duration) (killed int, err error) {
	return s.client.KillAll(ctx, s.Thread(), grace)
}

// Renew is [Session.Renew]. It creates the session, and starts the sandbox.
func (s *Sandbox) Renew(ctx context.Context, idleTimeout time.Duration) (info *schemas.Session, err error) {
	err = s.do(ctx, always, func(session *Session) error {
		info, err = session.Renew(ctx, idleTimeout)
		return err
	})
	return info, err
}

// unreadInput returns a request whose input can be asked whether nothing of it was read.
func unreadInput(req Request) (Request, func() bool) {
	if req.Stdin == nil {
		return req, always
	}
	in := &noted{Reader: req.Stdin}
	req.Stdin = in
	return req, func() bool { return !in.read.Load() }
}

// noted is a reader that notes the first read.
type noted struct {
	io.Reader
	read atomic.Bool
}

func (n *noted) Read(p []byte) (int, error) {
	n.read.Store(true)
	return n.Reader.Read(p)
}
