package client

import (
	"context"
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
func (c *Client) Logs(ctx context.Context, q LogQuery, fn func(schemas.Chunk) error) error {
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
	// Once the process has ended the wait for live output does, and with it the reading of a gap: Finish does the rest.
	live, stopLive := context.WithCancel(ctx)
	defer stopLive()
	ended, stop := c.watchEnd(ctx, ref, stopLive)
	defer stop()
	var failed error
	for {
		err := f.Next(live, func(k schemas.Chunk) error {
			failed = fn(k)
			return failed
		})
		switch {
		case err == nil:
		case failed != nil:
			return failed
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			select {
			case r := <-ended:
				return f.Finish(ctx, r, fn)
			default:
				return err
			}
		}
	}
}

// watchEnd listens for a process's end, and reads the record now and then should it have been missed. It calls found when the
// end is there to be received.
func (c *Client) watchEnd(ctx context.Context, ref schemas.ProcessRef, found func()) (<-chan *schemas.Result, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan *schemas.Result, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		feed, err := c.conn.Listen(events.Filter{Tenant: ref.Tenant, Thread: ref.Thread, Process: ref.Process}, 0)
		if err != nil {
			feed = nil // the connection is down: the record is read all the same
		} else {
			defer feed.Close()
			_ = c.conn.Flush(ctx) // what slips by until then is found by the next look
		}
		for ctx.Err() == nil {
			last, err := c.conn.Last(ctx, ref.Tenant, ref.Thread, ref.Process)
			if err == nil && last.Type.Terminal() {
				var r schemas.Result
				if last.Decode(&r) == nil {
					ended <- &r
					found()
					return
				}
			}
			wait, stop := context.WithTimeout(ctx, endTick)
			if feed == nil || feed.Next(wait, func(*schemas.Event) error { return nil }) != nil {
				<-wait.Done()
			}
			stop()
		}
	}()
	return ended, func() {
		cancel()
		<-gone
	}
}

// endTick is how often a follower that hears nothing looks whether the process has ended.
const endTick = time.Second

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
