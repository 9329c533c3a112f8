package schemas

// Phase is an occasion on which hooks run.
type Phase string

// The phases, in the order a session meets them.
const (
	PhaseColdStart    Phase = "cold_start"    // a sandbox was made on a worker that did not have the workspace yet
	PhaseMessage      Phase = "message"       // a message came, its agent has not begun
	PhaseStreamFinish Phase = "stream_finish" // the agent has ended, its answer is complete
	PhaseTerminate    Phase = "terminate"     // the session ends
)

// Phases lists every phase.
func Phases() []Phase {
	return []Phase{PhaseColdStart, PhaseMessage, PhaseStreamFinish, PhaseTerminate}
}

// The hooks of Sluice's own.
const (
	HookPull      = "pull-workspace" // cold_start: get the workspace from where it is kept
	HookSave      = "save-message"   // message, stream_finish: store what was said, and count it
	HookPush      = "push-workspace" // stream_finish, terminate: keep the workspace as a version
	HookAddTokens = "add-tokens"     // stream_finish: add up what the agent used
	HookCleanUp   = "clean-up"       // terminate: forget what was remembered of the thread
)

// BuiltinHooks lists the hooks of Sluice's own.
func BuiltinHooks() []string {
	return []string{HookPull, HookSave, HookPush, HookAddTokens, HookCleanUp}
}

// HookSpec is one hook of a template. One of Builtin, Command, Subject and URL is set.
type HookSpec struct {
	// Name is what events call it. Default: the built-in's name, or the kind and place.
	Name string `json:"name,omitempty"`
	// Builtin is a hook of Sluice's own: pull-workspace, save-message, push-workspace, add-tokens, clean-up.
	Builtin string `json:"builtin,omitempty"`
	// Command runs in the sandbox; it reads HookData on stdin. Any exit code but 0 is a failure.
	Command []string `json:"command,omitempty"`
	// Subject is asked by a NATS request with HookData; the answer is empty, or an Error.
	Subject string `json:"subject,omitempty"`
	// URL gets HookData by POST; any status but 2xx is a failure. Secret signs the body: the header Sluice-Signature is
	// "sha256=" and the hex HMAC-SHA256 of the header Sluice-Timestamp, a dot and the body.
	URL    string     `json:"url,omitempty"`
	Secret *SecretRef `json:"secret,omitempty"`
	// TimeoutMS bounds it. Default 30 s; 5 min for pull-workspace and push-workspace.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// Critical says whether its failure fails the occasion: the cold start, the message. Default: true for cold_start.
	Critical *bool `json:"critical,omitempty"`
}

// HookData is what a hook is told. Every hook of an occasion gets the same Occasion, also when the occasion is repeated: a
// hook that acts once per Occasion is idempotent.
type HookData struct {
	// SpecVersion is [Version].
	SpecVersion string `json:"specversion"`
	// Phase and Occasion say what happens: Occasion is the process's id for messages, the session's id and epoch for the rest.
	Phase    Phase  `json:"phase"`
	Occasion string `json:"occasion"`
	// Conversation is whose it is.
	Conversation Conversation `json:"conversation"`
	// Sandbox is the thread's sandbox, where there is one.
	Sandbox *SandboxInfo `json:"sandbox,omitempty"`
	// Message is the prompt, in the phase message, and the answer, in the phase stream_finish.
	Message *Message `json:"message,omitempty"`
	// Usage is what the message used, in the phase stream_finish.
	Usage *Usage `json:"usage,omitempty"`
}

// Conversation names a thread with what it runs under.
type Conversation struct {
	// Tenant and Thread are the thread's.
	Tenant string `json:"tenant"`
	Thread string `json:"thread"`
	// Agent is the template's name, User the session's user.
	Agent string `json:"agent,omitempty"`
	User  string `json:"user,omitempty"`
	// Session is the session's id, Epoch its epoch.
	Session string `json:"session"`
	Epoch   uint64 `json:"epoch"`
}

// HookRun tells of one hook on one occasion.
type HookRun struct {
	// Hook is its name, Phase when it runs.
	Hook  string `json:"hook"`
	Phase Phase  `json:"phase"`
	// Occasion is what it runs for; see HookData.
	Occasion string `json:"occasion"`
	// Critical is whether its failure fails the occasion.
	Critical bool `json:"critical,omitempty"`
	// Attempt counts from 1; a push that failed is tried again later.
	Attempt int `json:"attempt"`
	// DurationMS is how long it ran, in milliseconds; 0 in hook.started.
	DurationMS float64 `json:"duration_ms,omitempty"`
	// Error says why it failed.
	Error *Error `json:"error,omitempty"`
}

// ColdStart is the end of a cold start that went well.
type ColdStart struct {
	// Sandbox is the sandbox it was of.
	Sandbox string `json:"sandbox"`
	// SandboxMS and HooksMS are how long making it and its hooks took, in milliseconds.
	SandboxMS float64 `json:"sandbox_ms"`
	HooksMS   float64 `json:"hooks_ms"`
	// Epoch is the session's.
	Epoch uint64 `json:"epoch"`
}

// SyncReport is what a push or pull of a workspace did.
type SyncReport struct {
	// Location is where to or from.
	Location string `json:"location"`
	// Version is the version that was made, or pulled.
	Version string `json:"version,omitempty"`
	// Files and Bytes were carried over, Deleted removed.
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Deleted int64 `json:"deleted,omitempty"`
	// DurationMS is in milliseconds.
	DurationMS float64 `json:"duration_ms"`
	// Conflicts are the paths that changed on both sides, at most 100 of them.
	Conflicts []string `json:"conflicts,omitempty"`
}
