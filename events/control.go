package events

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/schemas"
)

// Verb is what a control message tells a running process; it is the last token of its subject.
type Verb string

// The verbs. A control message is answered with an empty message, or with an Error in JSON.
const (
	VerbSignal Verb = "signal" // body: schemas.SignalRequest
	VerbKill   Verb = "kill"   // body: schemas.KillRequest
	VerbStdin  Verb = "stdin"  // body: raw bytes; headers: offset, and whether it is the end
)

// Headers of a stdin message.
const (
	headerStdinEnd = "Sluice-End"
)

// MaxStdinPiece is the most bytes one stdin message carries.
const MaxStdinPiece = 256 << 10

// control sends a control message and waits for the owner's answer. Errors: not_found when nobody owns the thread, the
// owner's own, deadline_exceeded.
func (c *Conn) control(ctx context.Context, ref schemas.ProcessRef, verb Verb, header nats.Header, body []byte) error {
	m := &nats.Msg{Subject: c.Subjects.Control(ref.Tenant, ref.Thread, ref.Process, verb), Header: header, Data: body}
	reply, err := c.nc.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return schemas.Errorf(schemas.CodeNotFound, "no worker runs process %s of thread %s: it has ended, or its worker is gone", ref.Process, ref.Thread)
	}
	if err != nil {
		return wrap(err, string(verb)+" process "+ref.Process)
	}
	if len(reply.Data) == 0 {
		return nil
	}
	var e schemas.Error
	if err := json.Unmarshal(reply.Data, &e); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "%s process %s: unreadable answer: %w", verb, ref.Process, err)
	}
	return &e
}

// controlPatience bounds a signal or a kill where the caller's context does not: the answer of a worker that died is never
// coming.
const controlPatience = 10 * time.Second

// Signal sends a signal, such as "SIGINT", to a running process's group. Errors: not_found, invalid_argument,
// deadline_exceeded.
func (c *Conn) Signal(ctx context.Context, ref schemas.ProcessRef, req schemas.SignalRequest) error {
	return c.controlJSON(ctx, ref, VerbSignal, req)
}

// Kill ends a running process's whole tree. It returns once the worker has begun to; the end is an event. Errors:
// not_found, deadline_exceeded.
func (c *Conn) Kill(ctx context.Context, ref schemas.ProcessRef, req schemas.KillRequest) error {
	return c.controlJSON(ctx, ref, VerbKill, req)
}

func (c *Conn) controlJSON(ctx context.Context, ref schemas.ProcessRef, verb Verb, req any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return schemas.Errorf(schemas.CodeInternal, "encode %s: %w", verb, err)
	}
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	return c.control(ctx, ref, verb, nil, body)
}

// WriteStdin gives a process at most [MaxStdinPiece] bytes to read, offset being how many it was given before, and waits
// until they are taken, which is as long as ctx allows: a process may be slow to read. Sending a piece again does no harm. end closes the process's standard input after it. Errors:
// not_found when the process has ended or reads no more, too_large, deadline_exceeded.
func (c *Conn) WriteStdin(ctx context.Context, ref schemas.ProcessRef, offset int64, p []byte, end bool) error {
	if len(p) > MaxStdinPiece {
		return schemas.Errorf(schemas.CodeTooLarge, "%d bytes of input in one message, the limit is %d", len(p), MaxStdinPiece)
	}
	h := nats.Header{headerOffset: {strconv.FormatInt(offset, 10)}}
	if end {
		h.Set(headerStdinEnd, "true")
	}
	return c.control(ctx, ref, VerbStdin, h, p)
}
