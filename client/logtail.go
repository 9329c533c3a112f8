package client

import (
	"bytes"
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// lineStart is where a line of output begins.
type lineStart struct {
	seq    uint64 // of its chunk
	stream schemas.Stream
	offset int64
}

// tail finds the last lines of an output. It keeps their places, not their text.
type tail struct {
	max   int
	lines []lineStart // a ring, once it has max lines
	next  int         // the oldest line of the ring
	ends  map[schemas.Stream]int64
	open  map[schemas.Stream]bool // the stream's last line has no newline yet
	epoch uint64                  // of the last chunk
}

// tailOf returns a query for the last lines of what a query selects now.
func tailOf(ctx context.Context, c *Client, q LogQuery) (LogQuery, error) {
	all := q
	all.Tail, all.Follow, all.Gap = 0, false, nil
	t := newTail(q.Tail)
	err := c.Logs(ctx, all, t.add)
	return t.query(q), err
}

func newTail(lines int) *tail {
	return &tail{max: lines, ends: make(map[schemas.Stream]int64, 2), open: make(map[schemas.Stream]bool, 2)}
}

// query narrows a query to the last lines.
func (t *tail) query(q LogQuery) LogQuery {
	q.Tail = 0
	if len(t.lines) > 0 {
		q.From = t.lines[t.next].seq
		q.StdoutFrom, q.StderrFrom = max(q.StdoutFrom, t.from(schemas.Stdout)), max(q.StderrFrom, t.from(schemas.Stderr))
	}
	return q
}

func (t *tail) add(k schemas.Chunk) error {
	if k.Offset == 0 && k.Epoch > t.epoch { // a second run of the process: both streams begin anew
		clear(t.ends)
		clear(t.open)
	}
	t.epoch = k.Epoch
	for at := 0; at < len(k.Data); {
		if !t.open[k.Stream] {
			t.line(lineStart{k.Seq, k.Stream, k.Offset + int64(at)})
		}
		i := bytes.IndexByte(k.Data[at:], '\n')
		t.open[k.Stream] = i < 0
		if i < 0 {
			break
		}
		at += i + 1
	}
	t.ends[k.Stream] = k.End()
	return nil
}

func (t *tail) line(l lineStart) {
	if len(t.lines) < t.max {
		t.lines = append(t.lines, l)
		return
	}
	t.lines[t.next] = l
	t.next = (t.next + 1) % t.max
}

// from is the offset of a stream's first line among the last ones, or else the end of the stream.
func (t *tail) from(s schemas.Stream) int64 {
	for i := range t.lines {
		if l := t.lines[(t.next+i)%len(t.lines)]; l.stream == s {
			return l.offset
		}
	}
	return t.ends[s]
}
