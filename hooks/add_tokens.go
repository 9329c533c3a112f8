package hooks

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// addTokens is the built-in add-tokens. It is idempotent: an occasion is counted once.
type addTokens struct{ chains *Chains }

var _ StreamFinish = addTokens{}

// OnStreamFinish adds what the agent used to the session's sums.
func (h addTokens) OnStreamFinish(ctx context.Context, call *Call) error {
	if h.chains.cfg.Sessions == nil || call.Usage == nil || *call.Usage == (schemas.Usage{}) {
		return nil
	}
	return h.chains.cfg.Sessions.ChangeSession(ctx, call.Conversation, func(s *schemas.Session) {
		if !counted(s, call) {
			s.Usage = s.Usage.Add(*call.Usage)
		}
	})
}
