package hooks

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

// saveMessage is the built-in save-message. It is idempotent: it stores and counts a message once. A message that cannot be stored now
// waits and is retried; those of a thread are stored in their order.
type saveMessage struct {
	chains  *Chains
	unsaved *unsaved
}

var (
	_ Message      = saveMessage{}
	_ StreamFinish = saveMessage{}
	_ Retrier      = saveMessage{}
)

// OnMessage saves and counts the prompt.
func (h saveMessage) OnMessage(ctx context.Context, call *Call) error { return h.save(ctx, call) }

// OnStreamFinish saves the answer, after the prompt.
func (h saveMessage) OnStreamFinish(ctx context.Context, call *Call) error { return h.save(ctx, call) }

// ShouldRetry reports whether the message may be stored later.
func (h saveMessage) ShouldRetry(err error) bool { return mayPass(err) }

// save saves the messages of the call's thread that wait, its own last. A message that can never be stored does not keep the later
// ones waiting. Errors: those of the messages.
func (h saveMessage) save(ctx context.Context, call *Call) error {
	if call.Message == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "phase %s has no message to save", call.Phase)
	}
	if err := h.unsaved.add(call); err != nil {
		return err
	}
	if err := h.unsaved.keep(call); err != nil {
		h.chains.cfg.Log.Warn().Err(err).Str("thread", call.Conversation.Thread).Msg("message not kept until it is stored")
	}
	var refused error
	for next := h.unsaved.first(call); next != nil; next = h.unsaved.first(call) {
		err := h.saveOne(ctx, next.Call)
		if err != nil && mayPass(err) {
			return errors.Join(err, refused)
		}
		refused = errors.Join(refused, err)
		h.unsaved.remove(next)
	}
	return refused
}

func (h saveMessage) saveOne(ctx context.Context, call *Call) error {
	c := h.chains
	seq, err := c.cfg.Messages.SaveMessage(ctx, call.Conversation.Tenant, call.Message)
	if err != nil {
		return err
	}
	call.outcome.note(func(o *schemas.HookOutcome) { o.Saved = seq })
	saved := *call.Message
	saved.Text, saved.Seq = "", seq
	c.record(ctx, schemas.TypeMessageSaved, call, &saved)
	if call.Phase != schemas.PhaseMessage {
		return nil
	}
	return c.countOnce(ctx, call, func(s *schemas.Session) { s.Messages++ })
}
