package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// keyPause is the time between two keys: a keyboard repeats 30 a second, and people type slower.
const keyPause = 33 * time.Millisecond

// How much is measured of a terminal: every key takes a pause too.
const (
	keyRounds = 7
	keys      = 40
)

// keyEcho is the p50 from a key to its echo by a terminal, over that of a NATS request and its reply through the same server.
func keyEcho(ctx context.Context, b *bench, r *rig) (float64, error) {
	echo, err := nats.Connect(r.url, nats.Token(token))
	if err != nil {
		return 0, err
	}
	defer echo.Close()
	if _, err = echo.Subscribe("bench.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return 0, err
	}
	caller, err := nats.Connect(r.url, nats.Token(token))
	if err != nil {
		return 0, err
	}
	defer caller.Close()
	if err := errors.Join(echo.Flush(), caller.Flush()); err != nil {
		return 0, err
	}
	key, end, err := typing(ctx, r.client)
	if err != nil {
		return 0, err
	}
	defer end()
	request := func(ctx context.Context) error {
		_, err := caller.RequestWithContext(ctx, "bench.echo", []byte("x"))
		return err
	}
	return b.turns(ctx, keyRounds, side{"key to echo", keys, paced(key)}, side{"request", keys, paced(request)})
}

// paced is timed, after a pause.
func paced(f func(context.Context) error) op {
	measured := timed(f)
	return func(ctx context.Context) (time.Duration, error) {
		time.Sleep(keyPause)
		return measured(ctx)
	}
}

// typing starts a process in a terminal. key types a character and waits for its echo.
func typing(ctx context.Context, c *client.Client) (key func(context.Context) error, end func(), err error) {
	x, err := c.ExecStream(ctx, client.Request{Thread: "terminal", Command: "cat", Terminal: &schemas.TerminalSize{Rows: 24, Cols: 80}})
	if err != nil {
		return nil, nil, err
	}
	in, typed := io.Pipe()
	x.Input(ctx, in)
	shown := make(chan int, 16)
	go func() {
		defer close(shown)
		for e, err := range x.Events(ctx) {
			if err != nil {
				return
			}
			if e.Chunk != nil {
				shown <- len(e.Chunk.Data)
			}
		}
	}()
	key = func(ctx context.Context) error {
		if _, err := typed.Write([]byte("x")); err != nil {
			return err
		}
		select {
		case n, ok := <-shown:
			if !ok || n != 1 {
				return errors.New("the terminal did not echo the key")
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return key, func() {
		_ = x.Kill(ctx, 0) // it may have ended
		for range shown {  // until the process has ended
		}
		x.Close()
		_ = typed.Close() // it never fails
	}, nil
}
