package hooks

import (
	"context"
	"errors"

	"github.com/sluice-dev/sluice/schemas"
)

func (c *Chains) builtins() map[string]any {
	return map[string]any{
		schemas.HookPull: pullWorkspace{c}, schemas.HookSave: saveMessage{c, &unsaved{dir: c.cfg.Unsaved}}, schemas.HookPush: pushWorkspace{c},
		schemas.HookAddTokens: addTokens{c}, schemas.HookCleanUp: cleanUp{c},
	}
}

// builtin returns a built-in or Go hook by name. Errors: invalid_argument for an unknown hook or a template without sync,
// unavailable when the worker lacks a part that the hook needs.
func (c *Chains) builtin(t *schemas.Template, name string) (any, error) {
	hook, ok := c.named[name]
	syncs := name == schemas.HookPull || name == schemas.HookPush
	switch {
	case !ok:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "unknown hook %q: built in are %v", name, schemas.BuiltinHooks())
	case name == schemas.HookSave && c.cfg.Messages == nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "hook %s: this worker stores no messages", name)
	case syncs && t.Sync == nil && (t.Workspace == nil || name == schemas.HookPush):
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "hook %s: the template has no sync: set sync.location", name)
	case syncs && c.cfg.Workspace == nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "hook %s: this worker does not sync workspaces", name)
	}
	return hook, nil
}

// pullWorkspace is the built-in pull-workspace. It is idempotent: files that are present are not fetched again, and files
// changed here since stay.
type pullWorkspace struct{ chains *Chains }

var _ ColdStart = pullWorkspace{}

func (h pullWorkspace) OnColdStart(ctx context.Context, call *Call) error {
	report, err := h.chains.cfg.Workspace.Pull(ctx, call)
	h.chains.recordSync(ctx, schemas.TypeSyncPulled, call, report, err)
	if err != nil || report == nil || report.Version == "" {
		return err
	}
	return h.chains.changeSession(ctx, call, func(s *schemas.Session) { s.Version = report.Version })
}

// pushWorkspace is the built-in push-workspace. It is idempotent: an unchanged workspace makes no version.
type pushWorkspace struct{ chains *Chains }

var (
	_ StreamFinish = pushWorkspace{}
	_ Terminate    = pushWorkspace{}
	_ Retrier      = pushWorkspace{}
)

func (h pushWorkspace) OnStreamFinish(ctx context.Context, call *Call) error {
	_, err := h.push(ctx, call)
	return err
}

func (h pushWorkspace) OnTerminate(ctx context.Context, call *Call) error {
	return h.OnStreamFinish(ctx, call)
}

// ShouldRetry reports whether the push is owed: until it succeeds, unless the session has moved to another worker, which goes on from
// the last push.
func (h pushWorkspace) ShouldRetry(err error) bool { return !errors.Is(err, schemas.ErrLost) }

// mayPass reports whether a store may accept later what it refused with this error.
func mayPass(err error) bool {
	switch code := schemas.CodeOf(err); code {
	case schemas.CodeLost, schemas.CodeTooLarge:
		return false
	case schemas.CodePermissionDenied: // the store's: its credentials may be renewed
		return true
	default:
		return !code.Final()
	}
}

// recordSync records a pull or push: its conflicts, resolved or not, and its success.
func (c *Chains) recordSync(ctx context.Context, typ schemas.EventType, call *Call, report *schemas.SyncReport, err error) {
	if report == nil {
		return
	}
	if len(report.Conflicts) > 0 {
		c.record(ctx, schemas.TypeSyncConflict, call, report)
	}
	if err == nil {
		c.record(ctx, typ, call, report)
	}
}

// addTokens is the built-in add-tokens. It is idempotent: it counts an occasion once.
type addTokens struct{ chains *Chains }

var _ StreamFinish = addTokens{}

func (h addTokens) OnStreamFinish(ctx context.Context, call *Call) error {
	if call.Usage == nil || *call.Usage == (schemas.Usage{}) {
		return nil
	}
	return h.chains.countOnce(ctx, call, func(s *schemas.Session) { s.Usage = s.Usage.Add(*call.Usage) })
}

// cleanUp is the built-in clean-up: it drops the record of the thread's occasions. It keeps a pending retry of a push, which holds
// the last state of the workspace.
type cleanUp struct{ chains *Chains }

var _ Terminate = cleanUp{}

func (h cleanUp) OnTerminate(_ context.Context, call *Call) error {
	h.chains.occasions.forget(call.Conversation.Tenant, call.Conversation.Thread)
	return nil
}

// changeSession changes the call's session, if the worker keeps sessions.
func (c *Chains) changeSession(ctx context.Context, call *Call, change func(*schemas.Session)) error {
	if c.cfg.Sessions == nil {
		return nil
	}
	return c.cfg.Sessions.ChangeSession(ctx, call.Conversation, change)
}

// countOnce changes the call's session unless it counts the call's occasion already, also before a restart. The occasions of a
// thread are sequential, so the session stores only the last one.
func (c *Chains) countOnce(ctx context.Context, call *Call, count func(*schemas.Session)) error {
	counted := call.Occasion + "." + string(call.Phase)
	return c.changeSession(ctx, call, func(s *schemas.Session) {
		if s.Counted != counted {
			s.Counted = counted
			count(s)
		}
	})
}
