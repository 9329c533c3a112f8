package hooks

import "github.com/sluice-dev/sluice/schemas"

// Names of the built-in hooks.
const (
	PullWorkspace = "pull-workspace" // cold_start: brings the workspace from where the template keeps it
	SaveMessage   = "save-message"   // message, stream_finish: stores the prompt, and the answer
	PushWorkspace = "push-workspace" // stream_finish, terminate: stores the workspace as a version; tried again later where that fails
	AddTokens     = "add-tokens"     // stream_finish: adds what the agent used to the session's sums
	CleanUp       = "clean-up"       // terminate: forgets what was remembered of the thread
)

// Builtins lists their names.
func Builtins() []string {
	return []string{PullWorkspace, SaveMessage, PushWorkspace, AddTokens, CleanUp}
}

func (c *Chains) builtins() map[string]any {
	return map[string]any{
		PullWorkspace: pullWorkspace{c}, SaveMessage: saveMessage{c}, PushWorkspace: pushWorkspace{c},
		AddTokens: addTokens{c}, CleanUp: cleanUp{c},
	}
}

// builtin finds a hook by its name, and sees to it that it has what it needs.
func (c *Chains) builtin(t *schemas.Template, name string) (any, error) {
	hook, ok := c.named[name]
	switch {
	case !ok:
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "there is no hook %q here: built in are %v", name, Builtins())
	case name != PullWorkspace && name != PushWorkspace && name != SaveMessage:
		return hook, nil
	case name == SaveMessage && c.cfg.Messages == nil:
		return nil, schemas.Errorf(schemas.CodeUnavailable, "hook %s: this worker keeps no messages", name)
	case name == SaveMessage:
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
