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

// feed passes a reader on as the process's standard input. It ends with the reader, or when the process reads no more. A Read
// that is under way then goes on by itself: nothing can end it.
func (x *Execution) feed(ctx context.Context, from io.Reader) {
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

// readInput fills one piece while the one before is on its way: a piece is handed over only when that is done.
func readInput(ctx context.Context, from io.Reader, to chan<- inputPiece) {
	next, other := make([]byte, events.MaxStdinPiece), make([]byte, events.MaxStdinPiece)
	for {
		n, err := from.Read(next)
		end := err != nil // an input that fails ends, as it would at a shell's pipe
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

// writeStdin sends one piece until it is taken. A process may leave its input unread for as long as it likes, so that time
// alone is no reason to give up; sending a piece again does no harm.
func (x *Execution) writeStdin(ctx context.Context, offset int64, p []byte, end bool) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		try, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err := x.client.conn.WriteStdin(try, x.ref(), offset, p, end)
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
