package gateway

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// logEvent is an event of a process's output: stdout, stderr, gap, or exit as the last one.
type logEvent struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      string          `json:"data,omitempty"`
	ProcessID string          `json:"processId"`
	SessionID string          `json:"sessionId,omitempty"`
	Gap       *schemas.LogGap `json:"gap,omitempty"`
	ExitCode  *int            `json:"exitCode,omitempty"`
	Reason    schemas.Reason  `json:"reason,omitempty"`
}

// output makes events of a process's output. Their text is UTF-8: a character that two chunks share is in the second one's event, and
// what is no character is replaced.
type output struct {
	thread, process string
	streams         [2]outputStream // stdout, stderr
}

type outputStream struct {
	from int64  // the offset up to which events have it
	open []byte // the beginning of a character, after from
	seq  uint64 // of the chunk with open, in LOG
}

// place is how far a reader has read: a sequence of LOG, and the offset of each stream. It is the id of an event.
type place struct {
	seq            uint64
	stdout, stderr int64
}

// String is the id.
func (p place) String() string { return fmt.Sprintf("%d-%d-%d", p.seq, p.stdout, p.stderr) }

// parsePlace reads an id. Errors: invalid_argument.
func parsePlace(id string) (p place, err error) {
	if id == "" {
		return p, nil
	}
	n, err := fmt.Sscanf(id, "%d-%d-%d", &p.seq, &p.stdout, &p.stderr)
	if err != nil || n != 3 || p.stdout < 0 || p.stderr < 0 || p.String() != id {
		return p, schemas.Errorf(schemas.CodeInvalidArgument, "Last-Event-ID: %.60q is no id of an event of this stream", id)
	}
	return p, nil
}

func newOutput(thread, process string, from place) *output {
	return &output{thread: thread, process: process, streams: [2]outputStream{{from: from.stdout}, {from: from.stderr}}}
}

// clone returns an output that has come as far.
func (o *output) clone() *output {
	other := *o
	return &other
}

// same reports whether the streams have come as far as others.
func (o *output) same(as *[2]outputStream) bool {
	for i := range as {
		a, b := &o.streams[i], &as[i]
		if a.from != b.from || !bytes.Equal(a.open, b.open) || len(a.open) > 0 && a.seq != b.seq {
			return false
		}
	}
	return true
}

// chunk makes the event of a chunk; ok is false where it has no whole character.
func (o *output) chunk(k *schemas.Chunk) (e streamEvent, ok bool) {
	s := &o.streams[streamIndex(k.Stream)]
	data := k.Data
	if k.Offset == s.from+int64(len(s.open)) {
		data = slices.Concat(s.open, k.Data) // clones share what is open
	}
	whole := len(data) - partialRune(data)
	s.from, s.open = k.End()-int64(len(data)-whole), append([]byte(nil), data[whole:]...)
	if len(s.open) > 0 {
		s.seq = k.Seq
	}
	if whole == 0 {
		return e, false
	}
	return streamEvent{id: o.place(k.Seq).String(), data: o.event(string(k.Stream), k.Time, data[:whole])}, true
}

// place is where a reader goes on that has all events up to a chunk: it reads the beginnings of characters again.
func (o *output) place(seq uint64) place {
	p := place{seq: seq, stdout: o.streams[0].from, stderr: o.streams[1].from}
	for _, s := range o.streams {
		if len(s.open) > 0 {
			p.seq = min(p.seq, s.seq)
		}
	}
	return p
}

// rest makes events of the beginnings of characters that were never completed.
func (o *output) rest(at time.Time) (all []streamEvent) {
	for i, name := range schemas.Streams() {
		if open := o.streams[i].open; len(open) > 0 {
			all = append(all, streamEvent{data: o.event(string(name), at, open)})
		}
	}
	return all
}

func (o *output) event(kind string, at time.Time, data []byte) logEvent {
	return logEvent{Type: kind, Timestamp: at.UTC(), Data: strings.ToValidUTF8(string(data), "\uFFFD"), ProcessID: o.process,
		SessionID: o.thread}
}

// exit is the last event.
func (o *output) exit(r *schemas.Result) streamEvent {
	e := o.event("exit", r.Timestamp.Add(time.Duration(r.DurationMS*float64(time.Millisecond))), nil)
	e.ExitCode, e.Reason = &r.ExitCode, r.Reason
	return streamEvent{id: streamEnd, data: e}
}

// partialRune is the length of the beginning of a character at the end of p.
func partialRune(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// followOutput answers with the output of a process from its beginning or its last lines, or from after the reader's last event, until its
// end. A tail of 0 is all.
func (c *call) followOutput(running *client.Process, tail int) error {
	if c.lastEvent() == streamEnd {
		c.w.WriteHeader(204) // a reader that gets it does not come again
		return nil
	}
	from, err := parsePlace(c.lastEvent())
	if err != nil {
		return err
	}
	if c.lastEvent() != "" {
		tail = 0
	}
	return c.stream(func(ctx context.Context, send func(streamEvent) error) error {
		o := newOutput(running.Thread(), running.ID(), from)
		l := &logReader{call: c, output: o, running: running, send: send, tail: tail, next: from.seq, at: [2]readStream{{end: from.stdout}, {end: from.stderr}}}
		if err := l.run(ctx); err != nil {
			return err
		}
		r, err := running.Exit(ctx)
		if err != nil {
			return err
		}
		return o.end(r, send)
	})
}

// send passes the events of chunks on.
func (o *output) send(send func(streamEvent) error) func(schemas.Chunk) error {
	return func(k schemas.Chunk) error {
		if e, ok := o.chunk(&k); ok {
			return send(e)
		}
		return nil
	}
}

// end passes the last events on.
func (o *output) end(r *schemas.Result, send func(streamEvent) error) error {
	for _, e := range append(o.rest(time.Now()), o.exit(r)) {
		if err := send(e); err != nil {
			return err
		}
	}
	return nil
}
