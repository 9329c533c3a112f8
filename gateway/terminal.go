package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-dev/sluice/schemas"
)

// A terminal over WebSocket: binary messages are its bytes, text messages are JSON.

const (
	terminalProtocol = "sluice.terminal.v1"
	// terminalMessage is the largest message of a client after its first one, in bytes.
	terminalMessage = 64 << 10
	// outputMessage is the largest message with output, in bytes: what clients take that set no limit of their own.
	outputMessage = 32 << 10
	// positionBytes is how much output may follow a position before the next one: what a reader that goes on there reads again at most.
	positionBytes = 256 << 10
)

// terminalEvent is a text message to the client.
type terminalEvent struct {
	// Type is waiting, ready, position, exit or error.
	Type string `json:"type"`
	// Process is the id of the process, Thread its thread.
	Process string `json:"process,omitempty"`
	Thread  string `json:"thread,omitempty"`
	// Seq and Offset are where a client goes on: send them with attach. The next byte has Offset; at the exit it is the number of all bytes.
	Seq    uint64 `json:"seq,omitempty"`
	Offset *int64 `json:"offset,omitempty"`
	// Exit and Reason are how the process ended.
	Exit   *int           `json:"exit_code,omitempty"`
	Reason schemas.Reason `json:"reason,omitempty"`
	// Error is what went wrong, or what a queued command waits for, in words; Code is what to decide by.
	Error string       `json:"error,omitempty"`
	Code  schemas.Code `json:"code,omitempty"`
}

// terminalResize is a text message of the client, after its first one.
type terminalResize struct {
	// Type is resize.
	Type string `json:"type"`
	schemas.TerminalSize
}

// terminal is a connection of a client to a terminal.
type terminal struct {
	*call
	conn  *websocket.Conn
	queue chan frame
	next  int64 // the offset that the client has counted to
	noted int64 // the offset of the last position; -1 for none

	busy atomic.Bool  // input waits for the process
	last atomic.Int64 // when bytes came or went, in nanoseconds
}

// frame is a message to the client.
type frame struct {
	kind websocket.MessageType
	data []byte
}

// errLeft reports that the client is gone, or its connection.
var errLeft = errors.New("the client has left")

// serveTerminal serves terminals that join joins, as the client's first message asks for.
func serveTerminal(join func(ctx context.Context, t *terminal, first []byte) (*screen, error)) func(*call) error {
	return func(c *call) error {
		end := c.ending()
		if err := c.checkHandshake(); err != nil {
			return err
		}
		if end.has() {
			return errEnding()
		}
		if end.taken != nil {
			end.taken.Add(1)
			defer end.taken.Done()
		}
		conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{Subprotocols: []string{terminalProtocol}})
		if err != nil {
			panic(http.ErrAbortHandler) // the connection cannot be taken
		}
		defer func() { _ = conn.CloseNow() }() // it is closed unless there was a panic
		t := &terminal{call: c, conn: conn, queue: make(chan frame), noted: -1}
		t.active()
		t.close(t.run(join))
		return nil
	}
}

func errEnding() error {
	return schemas.Errorf(schemas.CodeUnavailable, "the gateway is ending: attach again")
}

// checkHandshake refuses a request that opens no WebSocket. Errors: invalid_argument.
func (c *call) checkHandshake() error {
	h := c.r.Header
	switch key, err := base64.StdEncoding.DecodeString(h.Get("Sec-WebSocket-Key")); {
	case c.r.Method != http.MethodGet || c.r.ProtoMajor != 1 || !hasToken(h, "Connection", "upgrade") || !hasToken(h, "Upgrade", "websocket"):
		c.w.Header().Set("Upgrade", "websocket")
		c.w.Header().Set("Connection", "Upgrade")
		return &refusal{
			err:    schemas.Errorf(schemas.CodeInvalidArgument, "this is a WebSocket: open it with a handshake of HTTP/1.1"),
			status: http.StatusUpgradeRequired,
		}
	case h.Get("Sec-WebSocket-Version") != "13":
		c.w.Header().Set("Sec-WebSocket-Version", "13")
		return schemas.Errorf(schemas.CodeInvalidArgument, "the version of WebSocket is %.20q: use 13", h.Get("Sec-WebSocket-Version"))
	case err != nil || len(key) != 16 || len(h.Values("Sec-WebSocket-Key")) != 1:
		return schemas.Errorf(schemas.CodeInvalidArgument, "Sec-WebSocket-Key is not one key of 16 bytes in base64")
	default:
		return nil
	}
}

func (t *terminal) active() { t.last.Store(time.Now().UnixNano()) }

// run serves the client until the process has ended, with no error, or until there is a reason to end before.
func (t *terminal) run(join func(ctx context.Context, t *terminal, first []byte) (*screen, error)) error {
	first, err := t.first()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.r.Context())
	defer cancel()
	s, err := join(ctx, t, first)
	if err != nil {
		return err
	}
	t.conn.SetReadLimit(terminalMessage)
	keys, typed := io.Pipe()
	ended, left := make(chan error, 1), make(chan error, 2)
	var source, watchers sync.WaitGroup
	source.Go(func() { ended <- t.guard(func() error { return s.output(ctx) }) })
	watchers.Go(func() { left <- t.guard(func() error { return t.read(ctx, typed, s) }) })
	watchers.Go(func() { left <- t.guard(func() error { return t.watch(ctx) }) })
	if s.keys != nil {
		s.keys.Input(ctx, keys)
	}
	err = t.write(ended, left)
	cancel()
	source.Wait()
	if s.keys != nil {
		s.keys.Close()
	}
	_ = keys.Close() // after it nothing is typed: the end of the input would be Ctrl+D
	if err != nil && s.kill && !t.ending().has() {
		s.end()
	}
	t.close(err)
	watchers.Wait()
	return err
}

// first reads the first message. Errors: invalid_argument, errLeft.
func (t *terminal) first() ([]byte, error) {
	t.conn.SetReadLimit(jsonBytes)
	patience := time.AfterFunc(t.g.cfg.Pause, func() {
		_ = t.conn.Close(websocket.StatusPolicyViolation, "there was no first message")
	})
	defer patience.Stop()
	kind, first, err := t.conn.Read(context.WithoutCancel(t.r.Context()))
	switch {
	case err != nil:
		return nil, errLeft
	case kind != websocket.MessageText:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the first message is binary: send the text that opens the terminal")
	default:
		return first, nil
	}
}

// write writes what is queued until the source or the connection has ended, or the gateway is about to.
func (t *terminal) write(ended, left <-chan error) error {
	for {
		select {
		case m := <-t.queue:
			if err := t.send(m); err != nil {
				return errLeft
			}
		case err := <-ended:
			return err
		case err := <-left:
			return err
		case <-t.ending().begun:
			return errEnding()
		}
	}
}

func (t *terminal) send(m frame) error {
	ctx, cancel := context.WithTimeout(t.r.Context(), t.g.cfg.Pause)
	defer cancel()
	return t.conn.Write(ctx, m.kind, m.data)
}

// read passes what the client sends on.
func (t *terminal) read(ctx context.Context, keys io.Writer, s *screen) error {
	for {
		kind, p, err := t.conn.Read(context.WithoutCancel(ctx)) // a context that ends closes the connection without a reason
		if err != nil {
			return errLeft
		}
		t.active()
		if s.keys == nil {
			continue
		}
		if kind == websocket.MessageBinary {
			t.busy.Store(true)
			_, _ = keys.Write(p) // it fails at the end
			t.busy.Store(false)
			continue
		}
		var size terminalResize
		if err := schemas.DecodeStrict("message", p, &size); err != nil {
			return err
		}
		if size.Type != "resize" {
			return schemas.Errorf(schemas.CodeInvalidArgument, "type: %.20q is no message of a client: use resize", size.Type)
		}
		if err := s.keys.Resize(ctx, size.TerminalSize); errors.Is(err, schemas.ErrInvalidArgument) {
			return err // after any other the terminal has the size that it had
		}
	}
}

// watch ends with an error when the client is gone, or nothing happens.
func (t *terminal) watch(ctx context.Context) error {
	beat := time.NewTicker(t.g.cfg.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Since(time.Unix(0, t.last.Load())) > t.g.cfg.Idle {
			return schemas.Errorf(schemas.CodeDeadlineExceeded, "neither input nor output for %s: attach again", t.g.cfg.Idle)
		}
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.g.cfg.Pause)
		err := t.conn.Ping(try)
		waiting := try.Err() != nil && t.busy.Load() // the answer is behind input that the process does not take
		cancel()
		if err != nil && !waiting {
			return errLeft
		}
	}
}

// note queues a text message.
func (t *terminal) note(ctx context.Context, e terminalEvent) error {
	return t.push(ctx, websocket.MessageText, encodeNote(e))
}

func (t *terminal) push(ctx context.Context, kind websocket.MessageType, data []byte) error {
	return enqueue(ctx, t.call, t.queue, frame{kind, data}, "attach again with seq and offset")
}

func encodeNote(e terminalEvent) []byte {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return body
}

// chunk queues output, with its position where the client cannot know it or would have to read much again.
func (t *terminal) chunk(ctx context.Context, k schemas.Chunk) error {
	if k.Stream != schemas.Stdout {
		return nil // a terminal has none
	}
	if t.noted < 0 || k.Offset != t.next || k.End()-t.noted > positionBytes {
		t.noted = k.Offset
		if err := t.note(ctx, terminalEvent{Type: "position", Seq: k.Seq, Offset: &k.Offset}); err != nil {
			return err
		}
	}
	t.next = k.End()
	t.active()
	for piece := range slices.Chunk(bytes.Clone(k.Data), outputMessage) {
		if err := t.push(ctx, websocket.MessageBinary, piece); err != nil {
			return err
		}
	}
	return nil
}

// close ends the connection with the reason. Only the first call does.
func (t *terminal) close(err error) {
	if errors.Is(err, errLeft) {
		_ = t.conn.CloseNow()
		return
	}
	if err == nil {
		_ = t.conn.Close(websocket.StatusNormalClosure, "the process has ended")
		return
	}
	e := schemas.AsError(err)
	_ = t.send(frame{websocket.MessageText, encodeNote(terminalEvent{Type: "error", Error: e.Error(), Code: e.Code})})
	code := closeCode(e.Code)
	if t.ending().has() {
		code = websocket.StatusGoingAway
	}
	_ = t.conn.Close(code, string(e.Code))
}

// closeCode is the status of the end of a connection that an error ends.
func closeCode(code schemas.Code) websocket.StatusCode {
	switch status := status(code); {
	case status == http.StatusServiceUnavailable:
		return websocket.StatusTryAgainLater
	case status < http.StatusInternalServerError || code == schemas.CodeDeadlineExceeded:
		return websocket.StatusPolicyViolation
	default:
		return websocket.StatusInternalError
	}
}
