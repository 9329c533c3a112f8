package gateway

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

// The conversation API: a prompt to the agent of a thread, whose answer streams.

func conversationRoutes() []route {
	return []route{
		{"POST /conversation/{conversationId}/sandbox/{sandboxId}", schemas.ScopeExec, func(c *call) error {
			return c.converse(c.r.PathValue("conversationId"))
		}},
		{"POST /sandboxes/{id}/claude", schemas.ScopeExec, func(c *call) error {
			thread, err := c.threadOf(c.r.PathValue("id"))
			if err != nil {
				return err
			}
			return c.converse(thread)
		}},
	}
}

// conversationEvent is the first event of an answer: what gives it.
type conversationEvent struct {
	Type           string `json:"type"` // metadata
	ConversationID string `json:"conversation_id"`
	SandboxID      string `json:"sandbox_id"`
	SessionID      string `json:"session_id"`
	AgentID        string `json:"agent_id"`
	ProcessID      string `json:"processId"`
}

// finishEvent is the last event of an answer: all work after it is done.
type finishEvent struct {
	Type     string         `json:"type"` // finish
	ExitCode int            `json:"exitCode"`
	Reason   schemas.Reason `json:"reason"`
	Usage    schemas.Usage  `json:"usage"`
	Version  string         `json:"version,omitempty"`
	Failed   []string       `json:"failed_hooks,omitempty"`
}

// threadOf returns the thread whose session has a sandbox, or is that session, or else the thread of this id. Errors: not_found,
// unavailable.
func (c *call) threadOf(id string) (string, error) {
	if _, err := c.client.SessionInfo(c.r.Context(), id); err == nil {
		return id, nil
	}
	list, err := c.client.Sessions(c.r.Context(), client.SessionQuery{Limit: maxListed})
	if err != nil {
		return "", err
	}
	for i := range list {
		if s := &list[i]; s.Sandbox == id || s.ID == id || sessionID(s) == id {
			return s.Thread, nil
		}
	}
	return "", schemas.Errorf(schemas.CodeNotFound, "there is no sandbox %.100q", id)
}

// converse sends a prompt, and streams the answer. The agent goes on when the reader leaves: its output is that of a process.
func (c *call) converse(thread string) error {
	var req struct {
		Prompt  string `json:"prompt"`
		AgentID string `json:"agent_id"`
	}
	if err := c.readJSON(&req); err != nil {
		return err
	}
	if req.Prompt == "" {
		return missing("prompt")
	}
	ctx := c.r.Context()
	x, err := c.client.MessageStream(ctx, client.Prompt{Thread: thread, Text: req.Prompt, Template: req.AgentID})
	if err != nil {
		return err
	}
	defer x.Close()
	return c.stream(func(ctx context.Context, send func(streamEvent) error) error {
		o, begun := newOutput(thread, x.Process(), place{}), false
		for e, err := range x.Events(ctx) {
			if err == nil && !begun && e.Waiting == nil {
				begun = true
				err = c.describe(ctx, thread, x.Process(), send)
			}
			switch {
			case err != nil:
				return err
			case e.Chunk != nil:
				err = o.send(send)(*e.Chunk)
			case e.Result != nil:
				err = c.finish(ctx, thread, e.Result, o, send)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// describe sends the first event, once the thread has a session.
func (c *call) describe(ctx context.Context, thread, process string, send func(streamEvent) error) error {
	s, err := c.client.SessionInfo(ctx, thread)
	if errors.Is(err, schemas.ErrNotFound) { // it has ended meanwhile
		s, err = &schemas.Session{Thread: thread}, nil
	}
	if err != nil {
		return err
	}
	return send(streamEvent{data: conversationEvent{"metadata", thread, s.Sandbox, sessionID(s), s.Template, process}})
}

// finishTimeout bounds the work after an answer: hooks, and the push of the workspace.
const finishTimeout = 5 * time.Minute

// finish sends the end of the agent, and what the work after it came to.
func (c *call) finish(ctx context.Context, thread string, r *schemas.Result, o *output, send func(streamEvent) error) error {
	if err := o.end(r, send); err != nil {
		return err
	}
	if r.Reason == schemas.ReasonRejected {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	finished := errors.New("finished")
	err := c.client.Events(ctx, client.EventQuery{Thread: thread, Process: r.Process, Follow: true}, func(ev *schemas.Event) error {
		if ev.Type != schemas.TypeStreamFinished {
			return nil
		}
		var f schemas.StreamFinish
		if err := ev.Decode(&f); err != nil {
			return err
		}
		return cmp.Or(send(streamEvent{id: streamEnd, data: finishEvent{"finish", f.ExitCode, f.Reason, f.Usage, f.Version, f.Failed}}), finished)
	})
	if errors.Is(err, finished) {
		return nil
	}
	return err
}
