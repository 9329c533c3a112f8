package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// foreground is a process that the user waits for: a command, or the agent that answers a message.
type foreground struct {
	*globals
	start  func(context.Context, *client.Client) (*client.Execution, error)
	own    hostOptions
	json   bool      // print the result instead of the output
	stdout io.Writer // of the process

	canceled atomic.Pointer[schemas.Error] // the user canceled the command while it was queued
}

// run starts the process, prints its output, forwards signals to it, and exits with its exit code.
func (p *foreground) run(ctx context.Context) error {
	interrupts, ctx := newInterrupts(ctx)
	defer interrupts.stop()
	c, err := p.connect(ctx, p.own)
	if err != nil {
		return p.failed(interrupts, err)
	}
	var code int
	if err = c.checkLimits(p.own); err == nil {
		code, err = p.watch(ctx, c, interrupts)
	}
	err = errors.Join(err, c.close(ctx))
	if err != nil {
		return p.failed(interrupts, err)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// failed is the end of a process without a result: no message where the user interrupted it, else the error, with --json as JSON
// too. What the user canceled has the exit code of the signal.
func (p *foreground) failed(i *interrupts, err error) error {
	canceled, sig := p.canceled.Load(), i.by()
	if canceled == nil && sig != 0 {
		return exitCode(schemas.ExitSignalBase + int(sig))
	}
	if canceled != nil {
		p.printError(canceled)
		err = canceled
	}
	if p.json {
		type failure struct {
			Error *schemas.Error `json:"error"`
		}
		err = errors.Join(err, p.printJSON(failure{schemas.AsError(err)}))
	}
	if canceled != nil {
		return exitCode(schemas.ExitSignalBase + int(sig))
	}
	return err
}

func (p *foreground) watch(ctx context.Context, c *connection, interrupts *interrupts) (int, error) {
	interrupts.hold()
	defer interrupts.release()
	x, err := p.start(ctx, c.client)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	if x.Queued() {
		p.notice(fmt.Sprintf("no worker is free: process %s is queued and starts when a worker takes it", x.Process()))
	}
	interrupts.forward(ctx, &remote{p, c, x, interrupts})
	out := &output{json: p.json, streams: [2]stream{{name: schemas.Stdout, to: p.stdout}, {name: schemas.Stderr, to: p.Stderr}}}
	waiting := ""
	for e, err := range x.Events(ctx) {
		switch {
		case err != nil:
			if interrupts.by() != 0 && p.canceled.Load() == nil {
				p.notice(c.leaving(x.Process()))
			}
			return 0, err
		case e.Waiting != nil:
			if e.Waiting.Message != waiting {
				waiting = e.Waiting.Message
				p.notice(waiting)
			}
		case e.Accepted:
		case e.Result != nil:
			return p.finish(e.Result, out)
		case out.write(e.Chunk):
			// The reader of the output has left, as head does. The process gets SIGPIPE, as it would in a pipe, and ends or
			// continues; in both cases this program waits for its end.
			pipeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardTimeout)
			_ = x.Signal(pipeCtx, "SIGPIPE") // it may have ended
			cancel()
		}
	}
	return 0, schemas.Errorf(schemas.CodeInternal, "the output of process %s ended without a result: see `sluice events --process %s`", x.Process(), x.Process())
}

// remote is the process of an execution as signals reach it.
type remote struct {
	*foreground
	conn       *connection
	x          *client.Execution
	interrupts *interrupts
}

// Signal sends it a signal. A command that is still queued is canceled by it.
func (r *remote) Signal(ctx context.Context, name string) {
	err := r.x.Signal(ctx, name)
	if err == nil || ctx.Err() != nil || !r.x.Queued() {
		r.report(ctx, err)
		return
	}
	if err := r.x.Cancel(ctx); err != nil {
		r.notice(fmt.Sprintf("process %s is still queued, and may not be canceled (%s): Ctrl+C again exits", r.x.Process(), err))
		return
	}
	r.canceled.Store(schemas.Errorf(schemas.CodeCanceled, "process %s was canceled while it was queued: it does not run", r.x.Process()))
	r.interrupts.quit()
}

// Kill kills it with its children.
func (r *remote) Kill(ctx context.Context) { r.report(ctx, r.x.Kill(ctx, 0)) }

func (r *remote) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, schemas.ErrNotFound) { // not found: it has ended, and its result follows
		r.printError(err)
	}
}

// Killable reports whether a worker has it.
func (r *remote) Killable() bool { return !r.x.Queued() }

// Detach reports whether it goes on without this program. A worker that is in the process of a command would end with it.
func (r *remote) Detach() bool {
	if !r.conn.temporary() {
		return true
	}
	r.notice("the terminal has closed: process " + r.x.Process() + " continues in this sluice, and `sluice logs -f " + r.x.Process() + "` follows it")
	return false
}

// finish prints what the output lacks and returns the exit code: the process's own, or 125 where it is 0 and the result has an
// error.
func (p *foreground) finish(r *schemas.Result, out *output) (int, error) {
	missing, err := out.complete(r)
	if err != nil {
		return 0, err
	}
	if out.json {
		return exitCodeOf(r), p.printJSON(r)
	}
	code := p.report(r)
	if missing > 0 {
		p.noticeMissing(missing)
	}
	return code, nil
}

// report prints how a process ended, where its exit code alone does not show that, and returns the exit code.
func (g *globals) report(r *schemas.Result) int {
	switch {
	case r.Error != nil:
		g.printError(r.Error)
	case r.Reason == schemas.ReasonTimedOut:
		took := time.Duration(r.DurationMS * float64(time.Millisecond)).Round(time.Millisecond)
		g.notice(fmt.Sprintf("timed out after %s: all its processes were killed", took))
	}
	return exitCodeOf(r)
}

// exitCodeOf is the process's exit code, or 125 where it is 0 and the result has an error. A workspace over its limit fails the next
// command, not this one.
func exitCodeOf(r *schemas.Result) int {
	if r.ExitCode == 0 && r.Error != nil && r.Error.Code != schemas.CodeLimitExceeded {
		return schemas.ExitSluiceFailed
	}
	return r.ExitCode
}

func (g *globals) noticeMissing(n int64) {
	g.notice(fmt.Sprintf("%d bytes of output are missing: the log does not hold them, or no longer", n))
}

// output writes a process's output and counts it.
type output struct {
	json    bool // the result has the output
	streams [2]stream
	missing int64
	broken  bool
}

type stream struct {
	name schemas.Stream
	to   io.Writer
	end  int64 // the offset after the last byte received
}

// write writes a chunk. It returns true once, when the reader of the output has left.
func (o *output) write(k *schemas.Chunk) (readerLeft bool) {
	s := &o.streams[0]
	if k.Stream == schemas.Stderr {
		s = &o.streams[1]
	}
	o.missing += max(0, k.Offset-s.end)
	s.end = k.End()
	return o.pass(s, k.Data)
}

func (o *output) pass(s *stream, p []byte) (readerLeft bool) {
	if o.json {
		return false
	}
	_, err := s.to.Write(p)
	if err == nil || o.broken {
		return false
	}
	o.broken = true
	return !errors.Is(err, unix.EIO) // the terminal has closed
}

// complete writes output that is in the result and did not come from the log: the log may have been full, or have dropped it. It
// returns how many bytes are missing.
func (o *output) complete(r *schemas.Result) (missing int64, err error) {
	for i := range o.streams {
		s := &o.streams[i]
		recorded, err := r.Output(s.name)
		if err != nil {
			return 0, err
		}
		total := r.StdoutBytes
		if s.name == schemas.Stderr {
			total = r.StderrBytes
		}
		if n := int64(len(recorded)); n > s.end {
			o.pass(s, recorded[s.end:])
			s.end = n
		}
		o.missing += max(0, total-s.end)
	}
	return o.missing, nil
}
