package schemas

import "time"

// Phase is a point in a session's life at which hooks run.
type Phase string

// The phases, in the order in which a session reaches them.
const (
	PhaseColdStart    Phase = "cold_start"    // a sandbox was created on a worker that does not have the workspace
	PhaseMessage      Phase = "message"       // a message arrived; its agent has not started
	PhaseStreamFinish Phase = "stream_finish" // the agent has ended; its answer is complete
	PhaseTerminate    Phase = "terminate"     // the session ends
)

// Phases lists every phase.
func Phases() []Phase {
	return []Phase{PhaseColdStart, PhaseMessage, PhaseStreamFinish, PhaseTerminate}
}

// The built-in hooks.
const (
	HookPull      = "pull-workspace" // cold_start: pull the workspace from its store
	HookSave      = "save-message"   // message, stream_finish: store the message and count it
	HookPush      = "push-workspace" // stream_finish, terminate: push the workspace as a new version
	HookAddTokens = "add-tokens"     // stream_finish: add the agent's tokens to the session's
	HookCleanUp   = "clean-up"       // terminate: drop the worker's state of the thread
)

// BuiltinHooks lists the built-in hooks.
func BuiltinHooks() []string {
	return []string{HookPull, HookSave, HookPush, HookAddTokens, HookCleanUp}
}

// HookSpec is one hook of a template. Exactly one of Builtin, Command, Subject, Publish and URL is set.
type HookSpec struct {
	// Name is the hook's name in events. Default: the built-in's name, or the kind and target.
	Name string `json:"name,omitempty"`
	// Builtin is a built-in hook: pull-workspace, save-message, push-workspace, add-tokens or clean-up.
	Builtin string `json:"builtin,omitempty"`
	// Command is a program that runs in the sandbox and reads HookData on standard input. Every exit code but 0 is a failure.
	Command []string `json:"command,omitempty"`
	// Subject is a NATS subject that gets HookData as a request. The reply is empty, the ack of a stream that stores the subject, or an
	// Error.
	Subject string `json:"subject,omitempty"`
	// Publish is a NATS subject on which HookData is published. No reply is waited for: the hook succeeds once the server has it.
	Publish string `json:"publish,omitempty"`
	// URL gets HookData by POST. Every status but 2xx is a failure. Secret signs the body: the header Sluice-Signature is
	// "sha256=" and the hex HMAC-SHA256 of the header Sluice-Timestamp, a dot and the body.
	URL    string     `json:"url,omitempty"`
	Secret *SecretRef `json:"secret,omitempty"`
	// TimeoutMS is the hook's timeout, in milliseconds; at most 24 h. Default 30 s; 5 min for pull-workspace and push-workspace.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Critical says whether a failure of the hook fails the cold start or the message. Default: true only for cold_start.
	Critical *bool `json:"critical,omitempty"`
}

// HookData is the input of a hook. When a phase is repeated, Occasion is the same: a hook that acts once per Occasion is
// idempotent.
type HookData struct {
	// SpecVersion is [Version].
	SpecVersion string `json:"specversion"`
	// Phase is the phase that runs.
	Phase Phase `json:"phase"`
	// Occasion identifies one run of a phase: the process's id for message and stream_finish, else the session's id and epoch. The end of a
	// session that an earlier end has kept is another occasion, with a number after them.
	Occasion string `json:"occasion"`
	// Conversation is the thread that the hook runs for.
	Conversation Conversation `json:"conversation"`
	// Sandbox is the thread's sandbox, when it has one.
	Sandbox *SandboxInfo `json:"sandbox,omitempty"`
	// Message is the prompt in phase message, and the answer in phase stream_finish.
	Message *Message `json:"message,omitempty"`
	// Usage is the tokens that the agent used, in phase stream_finish.
	Usage *Usage `json:"usage,omitempty"`
	Origin
}

// Conversation identifies a thread and its session.
type Conversation struct {
	// Tenant is the thread's tenant.
	Tenant string `json:"tenant"`
	// Thread is the thread's id.
	Thread string `json:"thread"`
	// Template is the name of the session's template.
	Template string `json:"template,omitempty"`
	// User is the session's user.
	User string `json:"user,omitempty"`
	// Session is the session's id.
	Session string `json:"session"`
	// Epoch is the session's epoch.
	Epoch uint64 `json:"epoch"`
	// From is that of the session.
	From string `json:"from,omitempty"`
}

// HookRun is one run of a hook.
type HookRun struct {
	// Hook is the hook's name.
	Hook string `json:"hook"`
	// Phase is the phase that it runs in.
	Phase Phase `json:"phase"`
	// Occasion identifies the run of the phase; see HookData.
	Occasion string `json:"occasion"`
	// Critical says whether a failure fails the phase.
	Critical bool `json:"critical,omitempty"`
	// Attempt counts the runs of the hook for this occasion, from 1. A failed push is retried later.
	Attempt int `json:"attempt"`
	// DurationMS is how long it ran, in milliseconds; 0 in hook.started.
	DurationMS float64 `json:"duration_ms,omitempty"`
	// Error is why it failed.
	Error *Error `json:"error,omitempty"`
}

// OwedPush is a push of a workspace that failed. The worker that has the workspace keeps it, and pushes again until that succeeds.
type OwedPush struct {
	// Tenant and Thread identify the thread.
	Tenant string `json:"tenant"`
	Thread string `json:"thread"`
	// Worker is the worker on whose disk the workspace is.
	Worker string `json:"worker"`
	// Session, Epoch and User are those of the session that changed it. The session may have ended.
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
	User    string `json:"user,omitempty"`
	// Template is the name of the session's template, which says where the workspace goes.
	Template string `json:"template,omitempty"`
	// Since is when the first push failed, in UTC.
	Since time.Time `json:"since"`
	// Attempts counts the pushes that failed; 0 when the worker died before it could push.
	Attempts int `json:"attempts,omitempty"`
	// Error is why the last one failed.
	Error *Error `json:"error,omitempty"`
}

// ColdStart reports a successful cold start.
type ColdStart struct {
	// Sandbox is the id of the new sandbox.
	Sandbox string `json:"sandbox"`
	// SandboxMS is the time to create the sandbox, HooksMS that of its hooks, in milliseconds.
	SandboxMS float64 `json:"sandbox_ms"`
	HooksMS   float64 `json:"hooks_ms"`
	// Epoch is the session's epoch.
	Epoch uint64 `json:"epoch"`
}

// SyncReport is the result of a push or pull of a workspace.
type SyncReport struct {
	// Location is where the workspace is stored.
	Location string `json:"location"`
	// Version is the version that was created or pulled.
	Version string `json:"version,omitempty"`
	// Files and Bytes count what was transferred, Deleted the files that were removed.
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Deleted int64 `json:"deleted,omitempty"`
	// DurationMS is how long it took, in milliseconds.
	DurationMS float64 `json:"duration_ms"`
	// Conflicts are paths that changed on both sides, at most 100.
	Conflicts []string `json:"conflicts,omitempty"`
}

// HookOutcome is what the hooks of a phase did. It is not on the wire.
type HookOutcome struct {
	// Failed are the names of the hooks that failed.
	Failed []string
	// Pushed says that the workspace is stored as it is, as a new version or as the last one.
	Pushed bool
	// Saved is the sequence in MSG of the message that was saved; 0 for none.
	Saved uint64
}

// HookMessage is what a hook sends to a NATS subject of a user. It is not on the wire as such.
type HookMessage struct {
	Subject string
	// ID is the same for the same occasion. A stream that stores the subject drops a repetition.
	ID string
	// Origin has the trace context for the headers.
	Origin Origin
	Body   []byte
}
