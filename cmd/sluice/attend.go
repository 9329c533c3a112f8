package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// task is what a person waits for: a command, or the answer to a message.
type task struct {
	start  func(context.Context, *client.Client) (*client.Execution, error)
	own    hosting // what a worker inside this process is made of
	json   bool    // print the result instead of the output
	stdout io.Writer
}

// attend starts a task, passes its output on and Ctrl+C to it, and ends as it does.
func (m *Main) attend(ctx context.Context, g *globals, t task) error {
	interrupts, ctx := newInterrupts(ctx)
	defer interrupts.stop()
	r, err := m.reach(ctx, g, t.own)
	if err != nil {
		return m.failed(interrupts, err, t.json)
	}
	code, err := m.watch(ctx, r, interrupts, t)
	err = errors.Join(err, r.close(ctx, m.note))
	if err != nil {
		return m.failed(interrupts, err, t.json)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// failed is what a task that has no result ends with: silence where the person left, else the error, which a program that asked for
// JSON gets as JSON.
func (m *Main) failed(i *interrupts, err error, asJSON bool) error {
	if sig := i.by(); sig != 0 {
		return exitCode(schemas.ExitSignalBase + int(sig))
	}
	if asJSON {
		type failure struct {
			Error *schemas.Error `json:"error"`
		}
		err = errors.Join(err, m.printJSON(failure{schemas.AsError(err)}))
	}
	return err
}

func (m *Main) printJSON(v any) error {
	enc := json.NewEncoder(m.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// note tells a person something that is no failure.
func (m *Main) note(text string) { fmt.Fprintln(m.Stderr, "sluice: "+printable(text)) }

func (m *Main) watch(ctx context.Context, r *reached, interrupts *interrupts, t task) (int, error) {
	interrupts.hold()
	defer interrupts.release()
	x, err := t.start(ctx, r.client)
	if err != nil {
		return 0, err
	}
	defer x.Close()
	if x.Queued() {
		m.note(fmt.Sprintf("no worker can take this now: process %s is queued and will run when one comes", x.Process()))
	}
	interrupts.forward(ctx, func(ctx context.Context, signal string) {
		err := x.Signal(ctx, signal)
		switch {
		case err == nil, ctx.Err() != nil:
		case x.Queued():
			m.note(fmt.Sprintf("process %s is still queued, so that there is nothing to signal: Ctrl+C again leaves, and it will run when a worker comes", x.Process()))
		case !errors.Is(err, schemas.ErrNotFound): // it has ended, which is about to be told
			m.say(err)
		}
	})
	out := newOutput(t.stdout, m.Stderr, t.json)
	for e, err := range x.Events(ctx) {
		switch {
		case err != nil:
			if interrupts.by() != 0 {
				m.note(r.leaving(x.Process()))
			}
			return 0, err
		case e.Result != nil:
			return m.ended(e.Result, out)
		case out.write(e.Chunk):
			// Who reads this has left, as head does. The process is told as it would be behind a pipe whose reader is gone, and
			// ends of that or goes on; either way its end is waited for.
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), passPatience)
			_ = x.Signal(stop, "SIGPIPE") // it may have ended
			cancel()
		}
	}
	return 0, schemas.Errorf(schemas.CodeInternal, "the output of process %s ended without a result: see `sluice events --process %s`", x.Process(), x.Process())
}
