package hooks

import "github.com/sluice-dev/sluice/schemas"

func (c *Chains) builtins() map[string]any {
	return map[string]any{
		schemas.HookPull: pullWorkspace{c}, schemas.HookSave: saveMessage{c}, schemas.HookPush: pushWorkspace{c},
		schemas.HookAddTokens: addTokens{c}, schemas.HookCleanUp: cleanUp{c},
	}
}

// builtin finds a hook by its name, and sees to it that it has what it needs.
func (c *Chains) builtin(t *schemas.Template, name string) (any, error) {
	hook, ok := c.named[name]
	switch {
	case !ok:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "there is no hook %q here: built in are %v", name, schemas.BuiltinHooks())
	case name != schemas.HookPull && name != schemas.HookPush && name != schemas.HookSave:
		return hook, nil
	case name == schemas.HookSave && c.cfg.Messages == nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "hook %s: this worker keeps no messages", name)
	case name == schemas.HookSave:
		return hook, nil
	case t.Sync == nil:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "hook %s: the template has no sync: say where workspaces are kept", name)
	case c.cfg.Workspace == nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "hook %s: this worker does not sync workspaces", name)
	}
	return hook, nil
}

// counted keeps a count from being made twice where an occasion is delivered again, also after a restart. A thread's occasions
// come one after the other, so that the last one counted is all that has to be known.
func counted(s *schemas.Session, call *Call) bool {
	mark := call.Occasion + "." + string(call.Phase)
	if s.Counted == mark {
		return true
	}
	s.Counted = mark
	return false
}
