package processor

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// HandleControl signals, kills or feeds a running process.
func (w *Worker) HandleControl(_ context.Context, ctl schemas.Control, done func(error)) {
	r := w.find(ctl.Tenant, ctl.Process)
	if r == nil || r.thread.thread != ctl.Thread {
		done(schemas.Errorf(schemas.CodeNotFound, "process %s of thread %s does not run: it has ended, or never began", ctl.Process, ctl.Thread))
		return
	}
	switch {
	case ctl.Signal != nil:
		done(r.signal(ctl.Signal.Signal))
	case ctl.Kill != nil:
		if ctl.Kill.GraceMS < 0 || ctl.Kill.GraceMS > schemas.MaxTimeoutMS {
			done(schemas.Errorf(schemas.CodeInvalidArgument, "grace_ms: %d is not between 0 and %d", ctl.Kill.GraceMS, schemas.MaxTimeoutMS).With("path", "grace_ms"))
			return
		}
		r.kill(time.Duration(ctl.Kill.GraceMS) * time.Millisecond)
		done(nil)
	case ctl.Stdin != nil:
		r.feed(*ctl.Stdin, done)
	default:
		done(schemas.Errorf(schemas.CodeInvalidArgument, "an empty control message"))
	}
}

func (r *run) signal(name string) error {
	sig, err := parseSignal(name)
	if err != nil {
		return err
	}
	r.mu.Lock()
	proc := r.proc
	if proc == nil { // it is being started, or waits for its turn: running delivers this
		defer r.mu.Unlock()
		if r.queued && ends(sig) {
			r.doomed = true
			r.cancelStart()
			return nil
		}
		if len(r.signals) == maxSignals {
			return schemas.Errorf(schemas.CodeUnavailable, "process %s is being started, and %d signals wait for it already", r.process, maxSignals)
		}
		r.signals = append(r.signals, sig)
		return nil
	}
	// The supervisor answers when it likes to: a kill must not have to wait for that.
	r.mu.Unlock()
	return proc.Signal(sig)
}

// ends says whether a signal is meant to end what it reaches. A message that waits for its turn has nothing that could catch it.
func ends(sig sandbox.Signal) bool {
	switch unix.Signal(sig) {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGKILL:
		return true
	default:
		return false
	}
}

// maxSignals is how many signals may wait for a process to be started.
const maxSignals = 64

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
	return 0, schemas.Errorf(schemas.CodeInvalidArgument, "signal: %q is no signal: use a name such as SIGINT, or a number", name).With("path", "signal")
}

// inputDepth is how many pieces of input may wait. A caller sends the next when the last is taken.
const inputDepth = 16

// input feeds a process's standard input, in order, apart from the control messages that come between.
type input struct {
	pieces chan piece
	taken  int64 // bytes of the pieces; the command's own input does not count
	over   bool  // there will be no more: the process goes on after its worker's restart, and its input was ended before
	given  bool  // the command's own input was handed over before

	mu     sync.Mutex
	closed bool
}

type piece struct {
	schemas.StdinPiece
	done func(error)
}

// newInput is for a command that has any; else nil. It takes pieces before the process runs.
func newInput(e *schemas.Exec) *input {
	if !e.StdinOpen && len(e.Stdin) == 0 {
		return nil
	}
	return &input{pieces: make(chan piece, inputDepth)}
}

// serve writes the command's own input, and the pieces that come, until stop is called.
func (in *input) serve(ctx context.Context, r *run, proc sandbox.Process) (stop func()) {
	if in == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		in.run(ctx, r, proc)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func (in *input) run(ctx context.Context, r *run, proc sandbox.Process) {
	taken, closed := in.taken, in.over // closed at the caller's wish
	var err error
	if !in.given {
		err = proc.WriteStdin(ctx, r.exec.Stdin)
	}
	if !r.exec.StdinOpen && err == nil {
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
		came := p.Offset <= taken && p.Offset+int64(len(p.Data)) <= taken
		switch {
		case came && (closed || err == nil && !p.End):
			p.done(nil) // its answer was lost
			continue
		case err != nil:
		case p.Offset > taken:
			p.done(schemas.Errorf(schemas.CodeInvalidArgument, "offset: %d, but only %d bytes of input came before", p.Offset, taken).With("path", "offset"))
			continue
		case !came:
			fresh := p.Data[taken-p.Offset:]
			if err = proc.WriteStdin(ctx, fresh); err == nil {
				taken += int64(len(fresh))
			}
		}
		if err == nil && p.End {
			if err = proc.CloseStdin(); err == nil {
				p.done(nil)
				closed, err = true, io.ErrClosedPipe
				continue
			}
		}
		p.done(inputError(r, err))
	}
}

func inputError(r *run, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrClosedPipe) || errors.Is(err, context.Canceled) {
		return schemas.Errorf(schemas.CodeNotFound, "process %s reads no more input", r.process)
	}
	return err
}

// refuse answers what still waits, and what comes later, once the process has ended. nil has nothing to refuse.
func (in *input) refuse(r *run) {
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	for {
		select {
		case p := <-in.pieces:
			p.done(inputError(r, io.ErrClosedPipe))
		default:
			return
		}
	}
}

func (r *run) feed(p schemas.StdinPiece, done func(error)) {
	in := r.input
	if in == nil || !r.exec.StdinOpen {
		done(schemas.Errorf(schemas.CodeInvalidArgument, "process %s was started without an open standard input: set stdin_open", r.process))
		return
	}
	if p.Offset < 0 {
		done(schemas.Errorf(schemas.CodeInvalidArgument, "offset: %d is negative", p.Offset).With("path", "offset"))
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		done(inputError(r, io.ErrClosedPipe))
		return
	}
	select {
	case in.pieces <- piece{p, done}:
	default:
		done(schemas.Errorf(schemas.CodeUnavailable, "too much input waits for process %s: send a piece when the last is taken", r.process))
	}
}
