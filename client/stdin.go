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

// copyInput copies a reader to the process's standard input, until the reader ends or the process no longer reads. A Read that blocks
// then cannot be ended and continues in its goroutine.
func (x *Execution) copyInput(ctx context.Context, from io.Reader) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pieces := make(chan inputPiece)
	go readInput(ctx, from, pieces)
	var offset int64
	for {
		select {
		case p := <-pieces:
			if x.writeStdin(ctx, offset, p.data, p.end) != nil || p.end {
				return
			}
			offset += int64(len(p.data))
		case <-ctx.Done():
			return
		}
	}
}

type inputPiece struct {
	data []byte
	end  bool
}

// readInput fills one piece while the previous one is sent. It hands over a piece only when the previous one is done.
func readInput(ctx context.Context, from io.Reader, to chan<- inputPiece) {
	next, other := make([]byte, events.MaxStdinPiece), make([]byte, events.MaxStdinPiece)
	for {
		n, err := from.Read(next)
		end := err != nil // a failed input ends, like a pipe of a shell
		if n == 0 && !end {
			continue
		}
		select {
		case to <- inputPiece{next[:n], end}:
		case <-ctx.Done():
			return
		}
		if end {
			return
		}
		next, other = other, next
	}
}

// writeStdin sends one piece until the process takes it. It does not give up after a time: a process may read late. A piece may be
// sent twice.
func (x *Execution) writeStdin(ctx context.Context, offset int64, p []byte, end bool) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		try, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := x.call.Verify(try)
		if err == nil {
			err = x.client.caller.WriteStdin(try, x.call.Ref(), offset, p, end)
		}
		if errors.Is(err, schemas.ErrUnavailable) || errors.Is(err, schemas.ErrDeadlineExceeded) ||
			(errors.Is(err, schemas.ErrNotFound) && x.Queued()) {
			return err
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}, backoff.WithContext(policy, ctx))
}
