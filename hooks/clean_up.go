package hooks

import "context"

// cleanUp is the built-in clean-up. A push that is still to be tried again stays: it is the last there is of the workspace.
type cleanUp struct{ chains *Chains }

var _ Terminate = cleanUp{}

// OnTerminate forgets the thread's occasions.
func (h cleanUp) OnTerminate(_ context.Context, call *Call) error {
	h.chains.memory.forget(call.Conversation.Tenant, call.Conversation.Thread)
	return nil
}
