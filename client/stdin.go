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

// feed passes a reader on as the process's standard input. It ends with the reader, or when the process reads no more.
func (x *Execution) feed(ctx context.Context, from io.Reader) {
	buf := make([]byte, events.MaxStdinPiece)
	var offset int64
	for {
		n, err := from.Read(buf)
		end := err != nil // an input that fails ends, as it would at a shell's pipe
		if n == 0 && !end {
			continue
		}
		if x.writeStdin(ctx, offset, buf[:n], end) != nil || end {
			return
		}
		offset += int64(n)
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
			(errors.Is(err, schemas.ErrNotFound) && x.call.Queued()) {
			return err
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}, backoff.WithContext(policy, ctx))
}
