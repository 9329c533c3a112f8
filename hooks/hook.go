package hooks

import (
	"context"

	"github.com/sluice-dev/sluice/schemas"
)

// ColdStart is a hook of the phase cold_start: a sandbox was made on a worker that does not have the workspace yet.
type ColdStart interface {
	// OnColdStart runs before the first command. An error of a critical hook fails the creation.
	OnColdStart(ctx context.Context, call *Call) error
}

// Message is a hook of the phase message: a prompt came, its agent has not begun.
type Message interface {
	// OnMessage runs before the agent. An error of a critical hook refuses the message.
	OnMessage(ctx context.Context, call *Call) error
}

// StreamFinish is a hook of the phase stream_finish: the agent has ended, its answer is complete.
type StreamFinish interface {
	// OnStreamFinish runs before the end of the message is told.
	OnStreamFinish(ctx context.Context, call *Call) error
}

// Terminate is a hook of the phase terminate: the session ends.
type Terminate interface {
	// OnTerminate runs while the workspace is still there; the sandbox may be gone.
	OnTerminate(ctx context.Context, call *Call) error
}

// Repeater is a hook whose failure is worth another try later, by itself: see [Chains.Retry].
type Repeater interface {
	// Again says whether what failed so may work later. The call of the later try has no Exec.
	Again(err error) bool
}

// Exec runs a command in the thread's sandbox, with these bytes on its standard input. Any exit code but 0 is an error.
type Exec func(ctx context.Context, command []string, stdin []byte) error

// Call is what a hook is told, with what it may use. It must not be changed.
type Call struct {
	schemas.HookData
	// Template is the recipe the session was made from.
	Template *schemas.Template
	// Dir is the workspace's folder on this worker; what is in it is the sandbox's, and so hostile. Go through os.Root.
	Dir string
	// Exec runs a command in the sandbox; nil where there is none.
	Exec Exec
}

// run is a hook's method for one phase.
type run func(ctx context.Context, call *Call) error

// method finds a hook's method for a phase; nil where it has none.
func method(hook any, phase schemas.Phase) run {
	switch phase {
	case schemas.PhaseColdStart:
		if h, ok := hook.(ColdStart); ok {
			return h.OnColdStart
		}
	case schemas.PhaseMessage:
		if h, ok := hook.(Message); ok {
			return h.OnMessage
		}
	case schemas.PhaseStreamFinish:
		if h, ok := hook.(StreamFinish); ok {
			return h.OnStreamFinish
		}
	case schemas.PhaseTerminate:
		if h, ok := hook.(Terminate); ok {
			return h.OnTerminate
		}
	}
	return nil
}

// checkHook refuses what implements no phase: it would never run, and nobody would know.
func checkHook(name string, hook any) error {
	for _, p := range schemas.Phases() {
		if hook != nil && method(hook, p) != nil {
			return nil
		}
	}
	return schemas.Errorf(schemas.CodeInvalidArgument,
		"hook %s: %T implements no phase: it needs OnColdStart, OnMessage, OnStreamFinish or OnTerminate", name, hook)
}

// everyPhase is a hook that does the same whatever the phase: what a template writes as a command, a subject or a URL.
type everyPhase func(ctx context.Context, call *Call) error

// OnColdStart runs it.
func (f everyPhase) OnColdStart(ctx context.Context, call *Call) error { return f(ctx, call) }

// OnMessage runs it.
func (f everyPhase) OnMessage(ctx context.Context, call *Call) error { return f(ctx, call) }

// OnStreamFinish runs it.
func (f everyPhase) OnStreamFinish(ctx context.Context, call *Call) error { return f(ctx, call) }

// OnTerminate runs it.
func (f everyPhase) OnTerminate(ctx context.Context, call *Call) error { return f(ctx, call) }
