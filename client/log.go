package client

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// LogQuery says which output to read.
type LogQuery struct {
	// Process is whose. Required.
	Process string
	// Thread is its thread. Default: found by the process's id.
	Thread string
	// From is the LOG sequence to begin at. 0 and 1 are the beginning.
	From uint64
	// Follow goes on until the process has ended.
	Follow bool
}

// Logs reads a process's output in order and gives each chunk to fn; what fn returns ends it. Without Follow it ends with
// what is stored now. Errors: fn's, not_found, invalid_argument, unavailable.
func (c *Client) Logs(ctx context.Context, q LogQuery, fn func(events.Chunk) error) error {
	ref, last, err := c.locate(ctx, q.Thread, q.Process)
	if err != nil {
		return err
	}
	if !q.Follow || last.Type.Terminal() {
		_, err := c.conn.ReadLog(ctx, c.conn.Subjects.ProcessLog(ref.Tenant, ref.Thread, ref.Process), q.From, 0, fn)
		return err
	}
	f, err := c.conn.Follow(ref, q.From)
	if err != nil {
		return err
	}
	defer f.Close()
	// Known to the server before the history is read: between the two no chunk can slip by.
	if err := f.Flush(ctx); err != nil {
		return err
	}
	if err := f.CatchUp(ctx, fn); err != nil {
		return err
	}
	ended, stop := c.watchEnd(ctx, ref)
	defer stop()
	for {
		next, cancel := context.WithTimeout(ctx, followTick)
		err := f.Next(next, fn)
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		select {
		case r := <-ended:
			return f.Finish(ctx, r, fn)
		default:
		}
	}
}

// followTick is how often a follower that hears nothing looks whether the process has ended.
const followTick = 100 * time.Millisecond

// watchEnd listens for a process's end, and reads the record now and then should it have been missed.
func (c *Client) watchEnd(ctx context.Context, ref events.ProcessRef) (<-chan *schemas.Result, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan *schemas.Result, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		feed, err := c.conn.Listen(events.Filter{Tenant: ref.Tenant, Thread: ref.Thread, Process: ref.Process}, 0)
		if err != nil {
			return
		}
		defer feed.Close()
		for ctx.Err() == nil {
			last, err := c.conn.Last(ctx, ref.Tenant, ref.Thread, ref.Process)
			if err == nil && last.Type.Terminal() {
				var r schemas.Result
				if last.Decode(&r) == nil {
					ended <- &r
					return
				}
			}
			wait, stop := context.WithTimeout(ctx, time.Second)
			// Whatever comes, or nothing within the second: the record is read again.
			_ = feed.Next(wait, func(*schemas.Event) error { return nil })
			stop()
		}
	}()
	return ended, func() {
		cancel()
		<-gone
	}
}

// EventQuery says which events to read. Empty fields match all.
type EventQuery struct {
	// Thread and Process narrow it down.
	Thread, Process string
	// From is the EVT sequence to begin at. 0 and 1 are the beginning.
	From uint64
	// Follow goes on until ctx ends.
	Follow bool
}

// Events reads events in order and gives each to fn; what fn returns ends it. Errors: fn's, ctx's, invalid_argument,
// unavailable.
func (c *Client) Events(ctx context.Context, q EventQuery, fn func(*schemas.Event) error) error {
	for field, id := range map[string]string{"thread": q.Thread, "process": q.Process} {
		if id == "" {
			continue
		}
		if err := schemas.CheckID(field, id); err != nil {
			return err
		}
	}
	f := events.Filter{Tenant: c.tenant, Thread: q.Thread, Process: q.Process}
	if !q.Follow {
		_, err := c.conn.ReadEvents(ctx, f, q.From, fn)
		return err
	}
	feed, err := c.conn.Listen(f, max(q.From, 1))
	if err != nil {
		return err
	}
	defer feed.Close()
	if err := c.conn.Flush(ctx); err != nil {
		return err
	}
	if err := feed.CatchUp(ctx, fn); err != nil {
		return err
	}
	for {
		if err := feed.Next(ctx, fn); err != nil {
			return err
		}
	}
}
