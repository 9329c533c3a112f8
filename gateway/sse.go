package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// streamEvent is an event of a stream. A reader that comes back names the id of the last one that it has.
type streamEvent struct {
	id      string // empty for one that does not move the reader's place
	data    any
	encoded []byte // the whole event, instead of the other two
}

// streamEnd is the id of the last event of a stream that is complete: a reader with it needs nothing more.
const streamEnd = "end"

// openingTime is how long a stream waits for its first event. A request that fails within it has an error with a status.
const openingTime = 250 * time.Millisecond

// verifyTimeout bounds the read of a token while its stream goes on: no event is sent meanwhile.
const verifyTimeout = 2 * time.Second

// streamFailure is the last event of a stream that ends early.
type streamFailure struct {
	Type  string       `json:"type"`
	Error string       `json:"error"`
	Code  schemas.Code `json:"code"`
}

// lastEvent is the id of the last event that the reader has; empty for none. A page that opens a stream again cannot set the header.
func (c *call) lastEvent() string { return cmp.Or(c.r.Header.Get("Last-Event-ID"), c.query("after")) }

// stream answers with server-sent events: what source sends, in order, and heartbeats meanwhile. It returns once source has ended. A reader
// that does not keep up, and every reader when the gateway ends, gets the reason as its last event; what the events come from is stored, so
// that it can go on.
func (c *call) stream(source func(ctx context.Context, send func(streamEvent) error) error) error {
	ctx, cancel := context.WithCancel(c.r.Context())
	queue, ended, done := make(chan []byte), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		ended <- c.guard(func() error {
			return source(ctx, func(e streamEvent) error { return enqueue(ctx, c, queue, encodeEvent(e), "go on with Last-Event-ID") })
		})
	}()
	defer func() { // nothing goes on after the request
		cancel()
		<-done
	}()
	opening := time.NewTimer(openingTime)
	defer opening.Stop()
	beat := time.NewTicker(c.g.cfg.Heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case p := <-queue:
			if full := c.quota.room(time.Now(), 0); full != nil {
				_ = c.writeEvents(encodeEvent(failureOf(full)))
				return nil
			}
			err = c.writeEvents(p)
		case <-opening.C:
			err = c.writeEvents(nil)
		case <-beat.C:
			if err := c.stillValid(ctx); err != nil {
				_ = c.writeEvents(encodeEvent(failureOf(err)))
				return nil
			}
			err = c.writeEvents([]byte(": heartbeat\n\n"))
		case <-c.ending().begun:
			_ = c.writeEvents(encodeEvent(failureOf(schemas.Errorf(schemas.CodeUnavailable, "the gateway is ending: go on with Last-Event-ID"))))
			return nil
		case err = <-ended:
			switch {
			case ctx.Err() != nil:
			case err == nil:
				_ = c.writeEvents(nil)
			case c.w.Header().Get("Content-Type") == "": // it has not begun
				return err
			default:
				_ = c.writeEvents(encodeEvent(failureOf(err)))
			}
			return nil
		}
		if err != nil {
			return nil // the reader has left
		}
	}
}

// stillValid returns unauthenticated once the token is revoked or has expired. Where that cannot be read, the stream goes on.
func (c *call) stillValid(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	_, err := c.g.authenticate(c.r.WithContext(ctx))
	if errors.Is(err, schemas.ErrUnauthenticated) {
		return err
	}
	return nil
}

// guard turns a panic of f into an error: in another goroutine it would end the program.
func (c *call) guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.g.logPanic(c.id, c.r, v)
			err = schemas.Errorf(schemas.CodeInternal, "the gateway failed: its log has request %s", c.id)
		}
	}()
	return f()
}

// enqueue waits until the reader has taken what came before. goOn says how a reader that is cut off continues.
func enqueue[T any](ctx context.Context, c *call, queue chan<- T, v T, goOn string) error {
	patience := time.NewTimer(c.g.cfg.Pause / 3)
	defer patience.Stop()
	select {
	case queue <- v:
		return nil
	case <-patience.C:
		c.g.cfg.Log.Info().Str("request", c.id).Msg("http_slow_reader")
		return schemas.Errorf(schemas.CodeDeadlineExceeded, "the reader took nothing for %s: %s", c.g.cfg.Pause/3, goOn)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func failureOf(err error) streamEvent {
	e := schemas.AsError(err)
	return streamEvent{data: streamFailure{Type: "error", Error: e.Error(), Code: e.Code}}
}

// encodeEvent writes an event. JSON has no line ends, so that its text cannot look like a field or another event.
func encodeEvent(e streamEvent) []byte {
	if len(e.encoded) > 0 {
		return e.encoded
	}
	body, err := json.Marshal(e.data)
	if err != nil {
		panic(err)
	}
	if e.id == "" {
		return fmt.Appendf(nil, "data: %s\n\n", body)
	}
	return fmt.Appendf(nil, "id: %s\ndata: %s\n\n", e.id, body)
}

// writeEvents writes to a stream, which begins with the first call.
func (c *call) writeEvents(p []byte) error {
	if h := c.w.Header(); h.Get("Content-Type") == "" {
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // proxies
		c.w.WriteHeader(http.StatusOK)
	}
	_, err := c.w.Write(p)
	return errors.Join(err, http.NewResponseController(c.w).Flush())
}
