package run

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Control signals a running process, kills it or writes to its standard input, and calls reply, once, with the outcome. A
// fenced worker does not call it: the answer is for the thread's owner to give.
func (rs *Runs) Control(ctl schemas.Control, reply func(error)) {
	done := func(err error) {
		if !rs.publisher.Fenced() {
			reply(err)
		}
	}
	run := rs.find(ctl.Tenant, ctl.Process)
	if run == nil || run.thread.ID != ctl.Thread || (ctl.Stdin == nil && run.isEnding()) {
		done(schemas.Errorf(schemas.CodeNotFound, "process %s of thread %s is not running: it has ended, or never started", ctl.Process, ctl.Thread))
		return
	}
	switch {
	case ctl.Signal != nil:
		done(run.signal(ctl.Signal.Signal))
	case ctl.Kill != nil:
		if ctl.Kill.GraceMS < 0 || ctl.Kill.GraceMS > schemas.MaxTimeoutMS {
			done(schemas.Errorf(schemas.CodeInvalidArgument, "grace_ms: %d is not between 0 and %d", ctl.Kill.GraceMS, schemas.MaxTimeoutMS).With("path", "grace_ms"))
			return
		}
		run.Kill(time.Duration(ctl.Kill.GraceMS) * time.Millisecond)
		done(nil)
	case ctl.Stdin != nil:
		run.stdin(*ctl.Stdin, done)
	case ctl.Resize != nil:
		done(run.resize(*ctl.Resize))
	default:
		done(schemas.Errorf(schemas.CodeInvalidArgument, "the control message has no operation: set signal, kill, stdin or resize"))
	}
}

// parseSignal reads SIGINT, INT or 2.
func parseSignal(name string) (sandbox.Signal, error) {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n < 65 {
		return sandbox.Signal(n), nil
	}
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if n := unix.SignalNum(upper); n != 0 {
		return sandbox.Signal(n), nil
	}
	return 0, schemas.Errorf(schemas.CodeInvalidArgument, "signal: unknown signal %q: use a name such as SIGINT, or a number", name).With("path", "signal")
}

// InputDepth is how many pieces of standard input may wait for a process. A caller sends the next piece when the last is written.
const InputDepth = 16

// input writes a process's standard input, in order, while other control messages overtake it.
type input struct {
	pieces  chan piece
	written writers // bytes of the pieces; the command's own input does not count
	eof     bool    // an earlier incarnation closed the input

	from  *pipe       // gives the process its input instead; nil for none
	own   []byte      // what the process has not got of the command's own input
	given atomic.Bool // the process has got it all

	mu     sync.Mutex
	closed bool
}

// maxWriters is how many writers of one process's input a worker knows. The one that wrote least recently is forgotten.
const maxWriters = 64

// writers are how far each writer of a process's input is. The last is the one that wrote last.
type writers struct {
	list []writer
	// adopt begins an unknown writer at its first piece: an earlier incarnation knew how far it was.
	adopt bool
	// before is how much all writers had written to earlier incarnations.
	before int64
}

type writer struct {
	id      string
	written int64
}

// of returns how many bytes the writer of a piece has written.
func (ws *writers) of(p *schemas.StdinPiece) *int64 {
	w := writer{id: p.Writer}
	if i := slices.IndexFunc(ws.list, func(w writer) bool { return w.id == p.Writer }); i >= 0 {
		w = ws.list[i]
		ws.list = slices.Delete(ws.list, i, i+1)
	} else if ws.adopt && (len(p.Data) > 0 || p.End) {
		w.written = p.Offset
		if end := p.Offset + int64(len(p.Data)); p.Offset > 0 && end == ws.before {
			w.written = end // the only writer repeats what was written, and its answer was lost
		}
	}
	if len(ws.list) == maxWriters {
		ws.list, ws.adopt = slices.Delete(ws.list, 0, 1), true
	}
	ws.list = append(ws.list, w)
	return &ws.list[len(ws.list)-1].written
}

type piece struct {
	schemas.StdinPiece
	done func(error)
}

// newInput returns nil for a command without input. It takes pieces before the process runs.
func newInput(e *schemas.Exec) *input {
	if !e.HasStdin() {
		return nil
	}
	return &input{pieces: make(chan piece, InputDepth), own: e.Stdin}
}

// owes reports whether the process may lack a part of the command's own input.
func (in *input) owes() bool { return in != nil && len(in.own) > 0 && !in.given.Load() }

// serve writes the command's own input, and the pieces that come, until stop is called.
func (in *input) serve(ctx context.Context, run *Run, proc sandbox.Process) (stop func()) {
	if in == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if in.from != nil {
			in.from.copy(ctx, proc, in.written.before, in.eof)
		} else {
			in.write(ctx, run, proc)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (in *input) write(ctx context.Context, run *Run, proc sandbox.Process) {
	closed := in.eof // by the caller's request
	var err error
	if len(in.own) > 0 {
		err = proc.WriteStdin(ctx, in.own)
		in.given.Store(err == nil)
	}
	if !run.exec.StdinOpen && err == nil {
		err = proc.CloseStdin()
	}
	if closed {
		err = io.ErrClosedPipe
	}
	for {
		var p piece
		select {
		case p = <-in.pieces:
		case <-ctx.Done():
			return
		}
		written := in.written.of(&p.StdinPiece)
		repeated := p.Offset <= *written && p.Offset+int64(len(p.Data)) <= *written
		switch {
		case repeated && (closed || err == nil && !p.End):
			p.done(nil) // its answer was lost
			continue
		case err != nil:
		case p.Offset > *written:
			p.done(schemas.Errorf(schemas.CodeInvalidArgument, "offset: %d, but only %d bytes of input came before", p.Offset, *written).
				With("path", "offset").With(schemas.DetailWritten, strconv.FormatInt(*written, 10)))
			continue
		case !repeated:
			fresh := p.Data[*written-p.Offset:]
			if err = proc.WriteStdin(ctx, fresh); err == nil {
				*written += int64(len(fresh))
			}
		}
		if err == nil && p.End {
			if err = proc.CloseStdin(); err == nil {
				p.done(nil)
				closed, err = true, io.ErrClosedPipe
				continue
			}
		}
		p.done(inputError(run, err))
	}
}

func inputError(run *Run, err error) error {
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		return schemas.Errorf(schemas.CodeNotFound, "process %s reads no more input", run.process).With(schemas.DetailInputClosed, "true")
	case errors.Is(err, context.Canceled): // it ends, or its worker does: then another one takes the input
		return schemas.Errorf(schemas.CodeUnavailable, "process %s takes no input now: send it again", run.process)
	default:
		return err
	}
}

// refuse answers the pieces that still wait, and later ones, once the process has ended.
func (in *input) refuse(run *Run) {
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	for {
		select {
		case p := <-in.pieces:
			p.done(inputError(run, io.ErrClosedPipe))
		default:
			return
		}
	}
}

// stdin queues a piece of standard input.
func (run *Run) stdin(p schemas.StdinPiece, done func(error)) {
	in := run.input
	if run.isEnding() {
		done(inputError(run, io.ErrClosedPipe)) // its end may be on record already
		return
	}
	if in == nil || !run.exec.StdinOpen {
		done(schemas.Errorf(schemas.CodeInvalidArgument,
			"process %s was started without an open standard input (stdin_open, `process start --stdin-open`)", run.process))
		return
	}
	if p.Writer != "" && !run.exec.TTY {
		done(schemas.Errorf(schemas.CodeInvalidArgument, "writer: process %s has no terminal, and so one writer, without an id", run.process).
			With("path", "writer"))
		return
	}
	if p.Offset < 0 {
		done(schemas.Errorf(schemas.CodeInvalidArgument, "offset: %d is negative", p.Offset).With("path", "offset"))
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		done(inputError(run, io.ErrClosedPipe))
		return
	}
	select {
	case in.pieces <- piece{p, done}:
	default:
		done(schemas.Errorf(schemas.CodeUnavailable, "too much input waits for process %s: send a piece when the last is written", run.process))
	}
}
