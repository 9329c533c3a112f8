package client

import (
	"cmp"
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// Prompt is a message to a thread's agent. Only Thread and Text are required.
type Prompt struct {
	// Thread is the conversation; see [schemas.ValidID].
	Thread string
	// Text is the prompt, at most [schemas.MaxPromptBytes].
	Text string
	// Template is the template of the session that the thread gets when it has none. Default: the worker's, which may have no agent.
	Template string
	// Session is the id of the session that must receive the message. Default: the one that the thread has.
	Session string
	// User is the author of the message. Default: none.
	User string
	// Key is the idempotency key: a message with the same key is answered once. Default: a new key.
	Key string
	// Timeout ends the agent. It counts from the agent's start. Default: the template's.
	Timeout time.Duration
	// OutputLimit is that of [Request].
	OutputLimit int64
	// Origin is that of [Request].
	schemas.Origin
}

func (p *Prompt) command() *schemas.Command {
	return &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpMessage, Thread: p.Thread, Key: cmp.Or(p.Key, ulid.Make().String()),
		Template: p.Template, Session: p.Session, Origin: p.Origin,
		Message: &schemas.MessageRequest{Prompt: p.Text, User: p.User, TimeoutMS: ceilMillis(p.Timeout), OutputLimit: outputLimit(p.OutputLimit)},
	}
}

// Message sends a message to the thread's agent and returns the result of its run; the answer is the standard output. The messages
// of a thread are answered one after another. When ctx ends first, the agent is killed. Errors: those of Exec, invalid_argument when
// the template has no agent.
func (c *Client) Message(ctx context.Context, p Prompt) (*schemas.Result, error) {
	return c.exec(ctx, p.command(), &Request{})
}

// MessageStream sends a message and returns once it is accepted or queued, like [Client.ExecStream].
func (c *Client) MessageStream(ctx context.Context, p Prompt) (*Execution, error) {
	return c.stream(ctx, p.command(), &Request{})
}

// MessageQuery selects messages.
type MessageQuery struct {
	// Thread is the conversation. Required.
	Thread string
	// From is the MSG sequence to begin at; see [schemas.Message.Seq]. 0 and 1 are the beginning.
	From uint64
	// Follow continues with new messages until ctx ends. The thread may have no message yet.
	Follow bool
}

// Messages passes the history of a conversation to fn in order, prompts and answers. An error of fn ends it. A thread without
// messages has an empty history. Errors: fn's, ctx's, invalid_argument, unavailable.
func (c *Client) Messages(ctx context.Context, q MessageQuery, fn func(*schemas.Message) error) error {
	if err := schemas.CheckID("thread", q.Thread); err != nil {
		return err
	}
	if !q.Follow {
		_, err := c.caller.Messages(ctx, c.tenant, q.Thread, q.From, fn)
		return err
	}
	feed, err := c.caller.FollowMessages(c.tenant, q.Thread, q.From)
	if err != nil {
		return err
	}
	return follow(ctx, c, feed, fn)
}

// feed follows the messages of a stream.
type feed[T any] interface {
	Flush(ctx context.Context) error
	CatchUp(ctx context.Context, fn func(T) error) error
	Next(ctx context.Context, fn func(T) error) error
	Close()
}

// follow passes what is stored and then what is new to fn, until an error.
func follow[T any](ctx context.Context, c *Client, f feed[T], fn func(T) error) error {
	defer f.Close()
	// The server must have the subscription before the history is read, or a message between the two is missed.
	if err := f.Flush(ctx); err != nil {
		return err
	}
	if err := f.CatchUp(ctx, fn); err != nil {
		return err
	}
	for {
		if err := f.Next(ctx, fn); err != nil {
			return err
		}
	}
}
