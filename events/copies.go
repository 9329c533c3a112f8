package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// How much live output waits in memory for a slow reader, in bytes: one alone has the most, and each further one of its connection less,
// down to the least. The subscription drops what exceeds it, and the reader reads it from the stream later.
const (
	followMost  = 32 << 20
	followLeast = 1 << 20
)

// followShare is the share of one reader.
func (r *streamReader) followShare() int {
	return max(followMost/max(int(r.following.Load()), 1), followLeast)
}

// reconnectCheck is how often a follower without live copies checks whether its connection was down.
const reconnectCheck = time.Second

// idleChecks is how often at least an idle follower asks the stream's leader, in reconnectChecks.
const idleChecks = 32

// copies are the live copies of what a stream stores on a subject. Some are missing or come late: a slow reader, a broken connection
// and a change of the stream's leader drop them. They are for one goroutine.
type copies struct {
	reader          *streamReader
	nc              *nats.Conn
	stream, subject string
	operation       string // for errors
	sub             *nats.Subscription

	kept       *nats.Msg // the next copy, when it was taken too early
	slow       bool      // copies were dropped while what the stream has was read
	behind     bool      // the stream may have messages of which no copy came
	reconnects uint64    // the connection's reconnects when the stream last had nothing unread
	idle       int       // reconnectChecks since the last copy
}

// open subscribes to the copies, which arrive on live. Errors: unavailable.
func (c *copies) open(live string) (err error) {
	if c.sub, err = c.nc.SubscribeSync(live); err == nil {
		c.reader.following.Add(1)
		err = c.sub.SetPendingLimits(-1, c.reader.followShare())
	}
	c.reconnects = c.nc.Stats().Reconnects
	return wrap(err, c.operation)
}

// Flush returns once the server has the subscription, also when the connection breaks meanwhile. Errors: unavailable, deadline_exceeded.
func (c *copies) Flush(ctx context.Context) error {
	return wrap(flushSubscriptions(ctx, c.nc), c.operation)
}

// Close ends the subscription. On failure it ends with the connection.
func (c *copies) Close() {
	if c.sub.Unsubscribe() == nil { // not a second time
		c.reader.following.Add(-1)
	}
}

// wait waits for a copy for at most a reconnectCheck, and returns nil when none came. from is the next sequence of the stream to
// deliver, 0 when it is not known. Errors: ctx's, unavailable once the connection is closed.
func (c *copies) wait(ctx context.Context, from uint64) (*nats.Msg, error) {
	if m := c.takeKept(); m != nil {
		return m, nil
	}
	m, err := nextWithin(ctx, c.sub, reconnectCheck)
	switch {
	case err == nil:
		c.idle = 0
		return m, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, nats.ErrSlowConsumer):
		c.behind = true
	case errors.Is(err, nats.ErrTimeout):
		// What was stored while the connection was down was not delivered.
		c.behind = c.nc.Stats().Reconnects != c.reconnects || c.missed(ctx, from)
	default:
		return nil, wrap(err, c.operation)
	}
	return nil, nil
}

// take returns the next copy that has arrived, nil for none.
func (c *copies) take() *nats.Msg {
	if m := c.takeKept(); m != nil {
		return m
	}
	m, err := c.sub.NextMsg(0)
	if errors.Is(err, nats.ErrSlowConsumer) { // reported once, whatever waits
		c.slow = true
		m, err = c.sub.NextMsg(0)
	}
	if err != nil {
		return nil
	}
	return m
}

func (c *copies) takeKept() *nats.Msg {
	m := c.kept
	c.kept = nil
	return m
}

// missed reports whether the stream has messages of which no copy came. It asks after 1, 2, 4, … idle checks.
func (c *copies) missed(ctx context.Context, from uint64) bool {
	if c.idle++; from == 0 || c.idle&(c.idle-1) != 0 && c.idle%idleChecks != 0 {
		return false
	}
	stored, err := c.reader.leaderSeq(ctx, c.stream, directRequest{Seq: from, NextBy: c.subject})
	return err != nil || stored != 0
}

// catchUp calls read, which reads what the stream has. Until it succeeds, the stream may have messages that no copy points to.
func (c *copies) catchUp(read func() error) error {
	c.behind, c.slow = true, false
	reconnects := c.nc.Stats().Reconnects
	err := read()
	if err == nil {
		c.behind, c.reconnects = c.slow, reconnects
	}
	return err
}
