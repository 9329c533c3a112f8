package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// LogQuery selects output.
type LogQuery struct {
	// Process is the id of the process. Required.
	Process string
	// Thread is its thread. Default: looked up by the id of the process.
	Thread string
	// From is the LOG sequence to begin at. 0 and 1 are the beginning.
	From uint64
	// StdoutFrom and StderrFrom are the offsets to begin at in the two streams. A reader that has stopped goes on at the end of its last
	// chunk of each. A second run of the process comes whole.
	StdoutFrom, StderrFrom int64
	// Tail selects the last lines of what is stored now, of both streams together. Default 0: all.
	Tail int
	// Since leaves out what LOG stored before. Default: nothing.
	Since time.Time
	// Follow continues with new output until the process has ended.
	Follow bool
	// Gap is called with output that is missing, before the output that follows it. Default: gaps show in the offsets of chunks only.
	Gap func(schemas.LogGap) error
}

// gaps passes chunks on, and reports those that are missing between them.
type gaps struct {
	coverage
	query LogQuery
	skip  map[schemas.Stream]int64 // the reader has the output before
}

func newGaps(q LogQuery) *gaps {
	return &gaps{query: q, skip: map[schemas.Stream]int64{schemas.Stdout: q.StdoutFrom, schemas.Stderr: q.StderrFrom}}
}

func (g *gaps) report(gap *schemas.LogGap) error {
	// A reader that begins later does not know what came before its first chunk, unless it says up to where it has read.
	if gap == nil || g.query.Gap == nil || (gap.From == 0 && g.query.From > 1 && g.query.StdoutFrom == 0 && g.query.StderrFrom == 0) {
		return nil
	}
	if gap = missing(gap.Stream, max(gap.From, g.skip[gap.Stream]), gap.To); gap == nil {
		return nil
	}
	return g.query.Gap(*gap)
}

func (g *gaps) before(fn func(schemas.Chunk) error) func(schemas.Chunk) error {
	return func(k schemas.Chunk) error {
		gap, rerun := g.see(&k)
		if rerun {
			g.skip[k.Stream] = 0
		}
		if !k.Time.IsZero() && k.Time.Before(g.query.Since) {
			return nil
		}
		if err := g.report(gap); err != nil {
			return err
		}
		if cut := g.skip[k.Stream] - k.Offset; cut > 0 {
			if cut >= int64(len(k.Data)) {
				return nil
			}
			k.Data, k.Offset = k.Data[cut:], k.Offset+cut
		}
		return fn(k)
	}
}

// after reports what is missing at the end of a process that has ended.
func (g *gaps) after(r *schemas.Result) error {
	for _, s := range schemas.Streams() {
		if err := g.report(missing(s, g.of(s).end, printed(r, s))); err != nil {
			return err
		}
	}
	return nil
}

// Logs passes the output of a process to fn in order. An error of fn ends it. Without Follow it ends with what is stored now.
// Errors: fn's, those of the query's Gap, not_found, invalid_argument, unavailable.
func (c *Client) Logs(ctx context.Context, q LogQuery, fn func(schemas.Chunk) error) error {
	if q.Tail > 0 {
		var err error
		if q, err = tailOf(ctx, c, q); err != nil {
			return err
		}
	}
	ref, last, err := c.locate(ctx, q.Thread, q.Process)
	if err != nil {
		return err
	}
	g := newGaps(q)
	fn = g.before(fn)
	if !q.Follow && !last.Type.Terminal() {
		_, err := c.caller.ReadLog(ctx, ref, "", q.From, 0, fn)
		return err
	}
	r, err := c.caller.FollowOutput(ctx, ref, last, q.From, fn)
	if err != nil {
		return err
	}
	return g.after(r)
}

// LogChunks is Logs as an iterator. It ends with an error, or after the last chunk. The data of a chunk is valid until the next one.
func (c *Client) LogChunks(ctx context.Context, q LogQuery) iter.Seq2[schemas.Chunk, error] {
	return func(yield func(schemas.Chunk, error) bool) {
		err := c.Logs(ctx, q, func(k schemas.Chunk) error {
			if !yield(k, nil) {
				return errBreak
			}
			return nil
		})
		if err != nil && !errors.Is(err, errBreak) {
			yield(schemas.Chunk{}, err)
		}
	}
}

// EventQuery selects events. Empty fields match all.
type EventQuery struct {
	// Thread and Process select the events of one thread and one process.
	Thread, Process string
	// Labels select the events of commands with these labels.
	Labels map[string]string
	// From is the EVT sequence to begin at. 0 and 1 are the beginning.
	From uint64
	// Follow continues with new events until ctx ends.
	Follow bool
}

// Events passes events to fn in order. An error of fn ends it. Errors: fn's, ctx's, invalid_argument, unavailable.
func (c *Client) Events(ctx context.Context, q EventQuery, fn func(*schemas.Event) error) error {
	if err := checkIDs(q.Thread, q.Process); err != nil {
		return err
	}
	f := events.Filter{Tenant: c.tenant, Thread: q.Thread, Process: q.Process}
	matching := func(ev *schemas.Event) error {
		if !ev.Has(q.Labels) {
			return nil
		}
		return fn(ev)
	}
	if !q.Follow {
		_, err := c.caller.ReadEvents(ctx, f, q.From, matching)
		return err
	}
	feed, err := c.caller.FollowEvents(f, max(q.From, 1))
	if err != nil {
		return err
	}
	return follow(ctx, c, feed, matching)
}
