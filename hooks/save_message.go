package hooks

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// saveMessage is the built-in save-message. It is idempotent: a message is stored once, and counted once.
type saveMessage struct{ chains *Chains }

var (
	_ Message      = saveMessage{}
	_ StreamFinish = saveMessage{}
)

// OnMessage saves the prompt, and counts it.
func (h saveMessage) OnMessage(ctx context.Context, call *Call) error {
	if err := h.save(ctx, call); err != nil || h.chains.cfg.Sessions == nil {
		return err
	}
	return h.chains.cfg.Sessions.ChangeSession(ctx, call.Conversation, func(s *schemas.Session) {
		if !counted(s, call) {
			s.Messages++
		}
	})
}

// OnStreamFinish saves the answer.
func (h saveMessage) OnStreamFinish(ctx context.Context, call *Call) error { return h.save(ctx, call) }

func (h saveMessage) save(ctx context.Context, call *Call) error {
	if call.Message == nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "there is no message to save in phase %s", call.Phase)
	}
	seq, err := h.chains.cfg.Messages.SaveMessage(ctx, call.Conversation.Tenant, call.Message)
	if err != nil {
		return err
	}
	told := *call.Message
	told.Text, told.Seq = "", seq
	h.chains.record(ctx, schemas.TypeMessageSaved, call, &told)
	return nil
}
