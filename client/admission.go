package client

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// Admission decides what a client may begin. Its methods are called before anything is sent, also at the same time by several goroutines;
// the caller gets their errors as they are.
type Admission interface {
	// Process is called before a command, a message or the start of a service is sent. process is the id of its process, or another one for a
	// service. done is called once, when the call has ended: a process that runs is in the list of [Client.Processes] by then.
	Process(ctx context.Context, thread, process string) (done func(), err error)
	// Session is called before what creates a session where the thread has none. done is as that of Process.
	Session(ctx context.Context, thread string) (done func(), err error)
}

// WithAdmission asks a before the client begins something. Default: everything is admitted.
func WithAdmission(a Admission) Option { return func(s *settings) { s.admission = a } }

// admit asks for a process in a thread, and for the session that it may create.
func admit(ctx context.Context, a Admission, thread, process string) (done func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	left, err := a.Session(ctx, thread)
	if err != nil {
		return nil, err
	}
	ended, err := a.Process(ctx, thread, process)
	if err != nil {
		left()
		return nil, err
	}
	return func() {
		left()
		ended()
	}, nil
}

// place places a thread on a worker once its session is admitted. Errors: those of the admission, of the worker, unavailable.
func (c *Client) place(ctx context.Context, req schemas.PlaceRequest) (*schemas.PlaceReply, error) {
	if c.admission != nil {
		done, err := c.admission.Session(ctx, req.Thread)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	return c.caller.Place(ctx, c.tenant, req)
}
