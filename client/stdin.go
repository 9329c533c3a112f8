package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// errInputClosed reports that the process reads no more input.
var errInputClosed = errors.New("the process reads no more input")

// readError is why the reader of an input failed.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// feed copies a reader to the process's standard input. It kills the process when a part of the input cannot arrive: the process would
// wait for it, or take the rest for all.
func (x *Execution) feed(ctx context.Context, from io.Reader) {
	err := x.stdin().copy(ctx, from)
	read, unread := errors.AsType[readError](err)
	switch {
	case err == nil, ctx.Err() != nil:
		return
	case unread:
		code := schemas.CodeOf(read.error)
		if code == schemas.CodeInternal { // the caller's fault, not one of Sluice's
			code = schemas.CodeInvalidArgument
		}
		x.inputFailed.Store(schemas.Errorf(code, "read the standard input of process %s: %w", x.Process(), read.error))
	case errors.Is(err, errInputClosed), errors.Is(err, schemas.ErrConflict):
		return
	default:
		x.inputFailed.Store(schemas.Errorf(schemas.CodeOf(err), "write the standard input of process %s: %w", x.Process(), err))
	}
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
	_ = x.Cancel(ctx) // it may have ended; when it is queued or its worker is away, Kill does not reach it
}

func (x *Execution) stdin() *stdin {
	return &stdin{caller: x.client.caller, ref: x.call.Ref(), writer: x.writer, verify: x.call.Verify, hasEnded: x.hasEnded}
}

// stdin is the standard input of a process, for one writer.
type stdin struct {
	caller *events.Caller
	ref    schemas.ProcessRef
	writer string
	// verify reports whether the process is the writer's; nil when it is.
	verify   func(context.Context) error
	hasEnded func(context.Context) bool
	keepOpen bool // at the end of a reader
}

// copy copies a reader to the process's standard input, until the reader ends or the process no longer reads. A Read that blocks
// then cannot be ended and continues in its goroutine.
func (in *stdin) copy(ctx context.Context, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if in.writer != "" {
		return in.copyKeys(ctx, from)
	}
	pieces := make(chan inputPiece)
	go readInput(ctx, from, pieces)
	var offset int64
	for {
		select {
		case p := <-pieces:
			if len(p.data) > 0 || p.end {
				if err := in.write(ctx, schemas.StdinPiece{Writer: in.writer, Offset: offset, Data: p.data, End: p.end}); err != nil || p.end {
					return err
				}
			}
			if p.err != nil {
				return readError{p.err}
			}
			offset += int64(len(p.data))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// copyKeys is copy for a terminal. The goroutine that reads sends: a key waits for no other one. With keepOpen, the end of the reader is
// not that of the input.
func (in *stdin) copyKeys(ctx context.Context, from io.Reader) error {
	ended := make(chan error, 1)
	go func() {
		p := schemas.StdinPiece{Writer: in.writer}
		keys := make([]byte, maxKeys)
		for {
			n, err := from.Read(keys)
			last, failed := err != nil, failure(err)
			p.Data, p.End, err = keys[:n], last && failed == nil && !in.keepOpen, nil
			if n > 0 || p.End {
				err = in.write(ctx, p)
			}
			if err == nil && failed != nil {
				err = readError{failed}
			}
			if err != nil || last {
				ended <- err
				return
			}
			p.Offset += int64(n)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxKeys is how many bytes of keys are sent together: what a terminal reads at once.
const maxKeys = 4 << 10

type inputPiece struct {
	data []byte
	end  bool
	err  error // why the reader failed after data; it is no end then
}

// failure is the error of a reader that did not end but failed.
func failure(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readInput fills one piece while the previous one is sent. It hands over a piece only when the previous one is done.
func readInput(ctx context.Context, from io.Reader, to chan<- inputPiece) {
	next, other := make([]byte, events.MaxStdinPiece), make([]byte, events.MaxStdinPiece)
	for {
		n, err := from.Read(next)
		if n == 0 && err == nil {
			continue
		}
		failed := failure(err)
		select {
		case to <- inputPiece{data: next[:n], end: err != nil && failed == nil, err: failed}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		next, other = other, next
	}
}

// inputTry is how long a piece may wait for its answer before it is sent again: a worker that was killed does not answer.
const inputTry = 5 * time.Second

// write sends one piece until the process takes it. It does not give up after a time: a process may read late, and its worker may
// come back. A piece may be sent twice. Errors: errInputClosed, conflict, and others that no repetition mends.
func (in *stdin) write(ctx context.Context, p schemas.StdinPiece) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		try, cancel := context.WithTimeout(ctx, inputTry)
		defer cancel()
		var err error
		if in.verify != nil {
			err = in.verify(try)
		}
		if err == nil {
			err = in.caller.WriteStdin(try, in.ref, p)
		}
		switch {
		case err == nil, errors.Is(err, schemas.ErrUnavailable), errors.Is(err, schemas.ErrDeadlineExceeded):
			return err
		case !errors.Is(err, schemas.ErrNotFound):
			return backoff.Permanent(err)
		case schemas.AsError(err).Details[schemas.DetailInputClosed] != "" || in.hasEnded(try):
			return backoff.Permanent(errInputClosed)
		default:
			return err // no worker has accepted it yet, or its worker is away
		}
	}, backoff.WithContext(policy, ctx))
}

// hasEnded reports whether the process has an end on record.
func (x *Execution) hasEnded(ctx context.Context) bool {
	ref := x.call.Ref()
	last, err := x.client.caller.Last(ctx, ref.Tenant, ref.Thread, ref.Process)
	return err == nil && last.Type.Terminal() && !x.Queued() // a queued command may run after such a record
}
