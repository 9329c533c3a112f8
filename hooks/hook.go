package hooks

import (
	"context"
	"sync"

	"github.com/sluice-dev/sluice/schemas"
)

// ColdStart is a hook of phase cold_start: a sandbox was created on a worker that does not have the workspace.
type ColdStart interface {
	// OnColdStart runs before the first command. The error of a critical hook fails the cold start.
	OnColdStart(ctx context.Context, call *Call) error
}

// Message is a hook of phase message: a prompt arrived, and its agent has not started.
type Message interface {
	// OnMessage runs before the agent. The error of a critical hook refuses the message.
	OnMessage(ctx context.Context, call *Call) error
}

// StreamFinish is a hook of phase stream_finish: the agent has ended, and its answer is complete.
type StreamFinish interface {
	// OnStreamFinish runs before the event stream.finished.
	OnStreamFinish(ctx context.Context, call *Call) error
}

// Terminate is a hook of phase terminate: the session ends.
type Terminate interface {
	// OnTerminate runs before the workspace is removed. The sandbox may be gone.
	OnTerminate(ctx context.Context, call *Call) error
}

// Retrier is a hook that [Chains.Retry] retries after a failure.
type Retrier interface {
	// ShouldRetry reports whether a later attempt may succeed after this error. The later call has no Exec.
	ShouldRetry(err error) bool
}

// Exec runs a command in the thread's sandbox, with stdin as its standard input. Every exit code but 0 is an error.
type Exec func(ctx context.Context, command []string, stdin []byte) error

// Call is the input of a Go hook. Hooks must not change it.
type Call struct {
	schemas.HookData
	// Template is the session's template.
	Template *schemas.Template
	// Dir is the workspace's folder on this worker. Its content comes from the sandbox and is untrusted: use os.Root.
	Dir string
	// Exec runs a command in the sandbox; nil without one.
	Exec Exec

	outcome *outcome
}

// outcome is what the hooks of an occasion have done. A hook that ignores its deadline may still note something after Run.
type outcome struct {
	mu sync.Mutex
	schemas.HookOutcome
}

// note changes the outcome.
func (o *outcome) note(change func(*schemas.HookOutcome)) {
	if o == nil {
		return // a push of an earlier run of the worker belongs to no occasion of this one
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	change(&o.HookOutcome)
}

// run is the method of a hook for one phase.
type run func(ctx context.Context, call *Call) error

// methodFor returns the method of a hook for a phase; nil if the hook has none.
func methodFor(hook any, phase schemas.Phase) run {
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

// checkHook refuses a hook that implements no phase, since it would never run.
func checkHook(name string, hook any) error {
	for _, p := range schemas.Phases() {
		if hook != nil && methodFor(hook, p) != nil {
			return nil
		}
	}
	return schemas.Errorf(schemas.CodeInvalidArgument,
		"hook %s: %T implements no phase: it needs OnColdStart, OnMessage, OnStreamFinish or OnTerminate", name, hook)
}

// everyPhase is a hook that does the same in every phase: a template's command, subject or URL.
type everyPhase func(ctx context.Context, call *Call) error

func (f everyPhase) OnColdStart(ctx context.Context, call *Call) error    { return f(ctx, call) }
func (f everyPhase) OnMessage(ctx context.Context, call *Call) error      { return f(ctx, call) }
func (f everyPhase) OnStreamFinish(ctx context.Context, call *Call) error { return f(ctx, call) }
func (f everyPhase) OnTerminate(ctx context.Context, call *Call) error    { return f(ctx, call) }
