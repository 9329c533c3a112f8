package client

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sluice-dev/sluice/schemas"
)

// Prompt is a message to a thread's agent. Only Thread and Text are required.
type Prompt struct {
	// Thread is the conversation; see [schemas.ValidID].
	Thread string
	// Text is what the agent is told, at most [schemas.MaxPromptBytes].
	Text string
	// Template is the recipe that a thread without a session gets one by. Default: the worker's, which may have no agent.
	Template string
	// Session is the id of the session it is meant for. Default: whichever the thread has.
	Session string
	// User is who says it. Default: nobody in particular.
	User string
	// Key makes it idempotent: the same key is answered once. Default: a new one.
	Key string
	// Timeout ends the agent. It counts from the agent's start. Default: the template's.
	Timeout time.Duration
	// OutputLimit is as in [Request].
	OutputLimit int64
}

func (p *Prompt) command() *schemas.Command {
	key := p.Key
	if key == "" {
		key = ulid.Make().String()
	}
	return &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpMessage, Thread: p.Thread, Key: key, Template: p.Template, Session: p.Session,
		Message: &schemas.MessageRequest{Prompt: p.Text, User: p.User, TimeoutMS: ceilMillis(p.Timeout), OutputLimit: outputLimit(p.OutputLimit)},
	}
}

// Message has the thread's agent answer, and returns how its run ended; the answer is its standard output. Messages of a thread
// are answered one after the other. When ctx ends first, the agent is killed. Errors are those of Exec, and invalid_argument
// where the template has no agent.
func (c *Client) Message(ctx context.Context, p Prompt) (*schemas.Result, error) {
	return c.finish(ctx, p.command(), nil)
}

// MessageStream sends a message and returns once it is accepted, or durable, as ExecStream does for a command.
func (c *Client) MessageStream(ctx context.Context, p Prompt) (*Execution, error) {
	return c.start(ctx, p.command(), nil, true)
}
