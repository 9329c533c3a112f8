package client

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// MessageQuery says which messages to read.
type MessageQuery struct {
	// Thread is whose. Required.
	Thread string
	// From is the MSG sequence to begin at, as [schemas.Message.Seq] tells it. 0 and 1 are the beginning.
	From uint64
	// Follow goes on until ctx ends. A thread that has no message yet can be followed too.
	Follow bool
}

// Messages reads a conversation's history in order, prompts and answers, and gives each to fn; what fn returns ends it. A thread
// without messages has an empty history. Errors: fn's, ctx's, invalid_argument, unavailable.
func (c *Client) Messages(ctx context.Context, q MessageQuery, fn func(*schemas.Message) error) error {
	if err := schemas.CheckID("thread", q.Thread); err != nil {
		return err
	}
	if !q.Follow {
		_, err := c.conn.Messages(ctx, c.tenant, q.Thread, q.From, fn)
		return err
	}
	feed, err := c.conn.ListenMessages(c.tenant, q.Thread, q.From)
	if err != nil {
		return err
	}
	defer feed.Close()
	// Known to the server before the history is read: between the two no message can slip by.
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
