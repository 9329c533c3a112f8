package client

import (
	"context"
	"io"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// newWriter returns the id of a writer to a terminal.
func newWriter() string { return "w" + strings.ToLower(ulid.Make().String()) }

// AttachRequest selects the terminal of a running process.
type AttachRequest struct {
	// Process is the id of the process. Required.
	Process string
	// Thread is its thread. Default: looked up by the id of the process.
	Thread string
	// Size becomes the terminal's size. The last resize decides for all that are attached. Required.
	Size schemas.TerminalSize
}

// Attachment is a connection to the terminal of a running process. Several can be open at a time: each gets all output and can write.
// One goroutine reads the output; Resize is safe for concurrent use.
type Attachment struct {
	client *Client
	ref    schemas.ProcessRef
	lines  int
	in     *stdin
	stop   context.CancelFunc
	input  sync.WaitGroup
}

// AttachProcess joins the terminal of a running process, and has its programs draw the screen again. Errors: not_found when there is no
// such process, or it has ended, or its worker is away; invalid_argument for an invalid size and for a process without a terminal;
// deadline_exceeded.
func (c *Client) AttachProcess(ctx context.Context, req AttachRequest) (*Attachment, error) {
	if err := req.Size.Validate(); err != nil {
		return nil, err
	}
	ref, last, err := c.locate(ctx, req.Thread, req.Process)
	if err != nil {
		return nil, err
	}
	if last.Type.Terminal() {
		return nil, schemas.Errorf(schemas.CodeNotFound, "process %s has ended: `sluice logs %[1]s` prints its output", ref.Process)
	}
	// Programs draw the screen again only when the size changes.
	other := req.Size
	if other.Rows++; other.Rows > schemas.MaxTerminalSize {
		other.Rows = 1
	}
	a := &Attachment{client: c, ref: ref, lines: int(req.Size.Rows), stop: func() {}}
	a.in = &stdin{
		caller: c.caller, ref: ref, writer: newWriter(), hasEnded: a.hasEnded, keepOpen: true,
	}
	if err := a.Resize(ctx, other); err != nil {
		return nil, err
	}
	return a, a.Resize(ctx, req.Size)
}

// Process returns the id of the process.
func (a *Attachment) Process() string { return a.ref.Process }

// Output passes the last screenful of output to fn, and then all that follows, until the process ends. It returns the result then.
// Errors: fn's, ctx's, unavailable.
func (a *Attachment) Output(ctx context.Context, fn func(schemas.Chunk) error) (*schemas.Result, error) {
	q := LogQuery{Thread: a.ref.Thread, Process: a.ref.Process, Tail: a.lines, Follow: true}
	if err := a.client.Logs(ctx, q, fn); err != nil {
		return nil, err
	}
	last, err := a.client.caller.Last(ctx, a.ref.Tenant, a.ref.Thread, a.ref.Process)
	if err != nil {
		return nil, err
	}
	return resultOf(last)
}

// Input copies a reader to the terminal until the reader or the process ends. The end of the reader does not end the terminal's input.
// It returns at once. Call it once, before Close.
func (a *Attachment) Input(ctx context.Context, from io.Reader) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = cancel
	a.input.Go(func() { _ = a.in.copy(ctx, from) }) // it ends with the process, or with Close
}

// Resize changes the size of the terminal. Errors: invalid_argument, not_found, deadline_exceeded.
func (a *Attachment) Resize(ctx context.Context, size schemas.TerminalSize) error {
	return a.client.caller.Resize(ctx, a.ref, size)
}

func (a *Attachment) hasEnded(ctx context.Context) bool {
	last, err := a.client.caller.Last(ctx, a.ref.Tenant, a.ref.Thread, a.ref.Process)
	return err == nil && last.Type.Terminal()
}

// Close leaves the process, which continues.
func (a *Attachment) Close() {
	a.stop()
	a.input.Wait()
}
