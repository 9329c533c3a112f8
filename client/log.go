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
	end := c.watchEnd(ctx, ref)
	defer end.stop()
	for {
		// The end interrupts the wait for live output and nothing else: reading what was missed may take its time.
		err := f.Next(end.before, fn)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case end.before.Err() == nil || !errors.Is(err, context.Canceled):
			return err
		default:
			r, err := end.result()
			if err != nil {
				return err
			}
			return f.Finish(ctx, r, fn)
		}
	}
}

// ending is a process's end that is being waited for.
type ending struct {
	before context.Context // until the end
	result func() (*schemas.Result, error)
	stop   func()
}

// recheckEvery is how often the record is read, should the live copy of the end have been missed.
const recheckEvery = time.Second

// watchEnd listens for a process's end.
func (c *Client) watchEnd(ctx context.Context, ref events.ProcessRef) *ending {
	ctx, cancel := context.WithCancel(ctx)
	var result *schemas.Result
	var failed error
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		result, failed = c.awaitEnd(ctx, ref)
	}()
	return &ending{
		before: ctx,
		result: func() (*schemas.Result, error) {
			<-gone
			return result, failed
		},
		stop: func() {
			cancel()
			<-gone
		},
	}
}

func (c *Client) awaitEnd(ctx context.Context, ref events.ProcessRef) (*schemas.Result, error) {
	feed, err := c.conn.Listen(events.Filter{Tenant: ref.Tenant, Thread: ref.Thread, Process: ref.Process}, 0)
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	for {
		last, err := c.conn.Last(ctx, ref.Tenant, ref.Thread, ref.Process)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, schemas.ErrNotFound):
			return nil, err // its record has aged out
		case err == nil && last.Type.Terminal():
			var r schemas.Result
			if err := last.Decode(&r); err != nil {
				return nil, err
			}
			return &r, nil
		}
		wait, stop := context.WithTimeout(ctx, recheckEvery)
		// Whatever comes, or nothing in that time: the record is read again.
		err = feed.Next(wait, func(*schemas.Event) error { return nil })
		waited := wait.Err() != nil
		stop()
		if err != nil && !waited {
			return nil, err
		}
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
