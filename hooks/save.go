package hooks

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// saveMessage is the built-in save-message. It is idempotent: it stores and counts a message once. A message that cannot be stored now
// stays in memory and is retried; those of a thread are stored in their order.
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
	var refused error
	for next := h.unsaved.first(call); next != nil; next = h.unsaved.first(call) {
		err := h.saveOne(ctx, next)
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

// maxUnsaved is how many messages of a thread wait to be stored. A thread's messages are answered one after the other.
const maxUnsaved = 256

// unsaved are the messages of each thread that are not stored yet, in their order. Its zero value is ready to use.
type unsaved struct {
	mu    sync.Mutex
	calls map[threadKey][]*Call
}

type threadKey struct{ tenant, thread string }

func keyOfThread(call *Call) threadKey {
	return threadKey{call.Conversation.Tenant, call.Conversation.Thread}
}

// add adds a message, unless it waits already. Errors: limit_exceeded.
func (u *unsaved) add(call *Call) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := keyOfThread(call)
	waiting := u.calls[key]
	for _, c := range waiting {
		if c.Message.Process == call.Message.Process && c.Message.Role == call.Message.Role {
			return nil
		}
	}
	if len(waiting) == maxUnsaved {
		return schemas.Errorf(schemas.CodeLimitExceeded, "%d messages of thread %s wait to be stored already", maxUnsaved, key.thread)
	}
	if u.calls == nil {
		u.calls = make(map[threadKey][]*Call)
	}
	later := *call
	later.Exec = nil // the sandbox may be gone by then
	u.calls[key] = append(waiting, &later)
	return nil
}

// first returns the message that has to be stored next in the call's thread; nil for none. Concurrent callers may store the same one.
func (u *unsaved) first(call *Call) *Call {
	u.mu.Lock()
	defer u.mu.Unlock()
	if waiting := u.calls[keyOfThread(call)]; len(waiting) > 0 {
		return waiting[0]
	}
	return nil
}

// remove removes a message that first returned.
func (u *unsaved) remove(call *Call) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := keyOfThread(call)
	waiting := u.calls[key]
	if len(waiting) == 0 || waiting[0] != call {
		return // another caller has stored it as well
	}
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(u.calls, key)
		return
	}
	u.calls[key] = waiting
}
