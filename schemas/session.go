package schemas

import "time"

// SandboxState is the state of a sandbox. Package processor has the state machine.
type SandboxState string

// The states. A sandbox can be terminated from every state that is not final.
const (
	SandboxPending    SandboxState = "pending"    // requested, not yet created
	SandboxCreating   SandboxState = "creating"   // its provider creates it, or its cold-start hooks run
	SandboxRunning    SandboxState = "running"    // it runs commands
	SandboxCompleted  SandboxState = "completed"  // it ended by itself, or was parked; final
	SandboxFailed     SandboxState = "failed"     // it could not be created, or broke; final
	SandboxTerminated SandboxState = "terminated" // it was stopped on request; final
)

// SandboxStates lists every state.
func SandboxStates() []SandboxState {
	return []SandboxState{SandboxPending, SandboxCreating, SandboxRunning, SandboxCompleted, SandboxFailed, SandboxTerminated}
}

// Final reports whether no other state can follow.
func (s SandboxState) Final() bool {
	return s == SandboxCompleted || s == SandboxFailed || s == SandboxTerminated
}

// Session binds a thread to a sandbox and a workspace. It is stored in KV and changes only by compare-and-swap.
type Session struct {
	// ID is the session's id, a ULID.
	ID string `json:"id"`
	// Tenant and Thread identify the thread.
	Tenant string `json:"tenant"`
	Thread string `json:"thread"`
	// User is the user's name as the caller gave it. It is a label and grants no rights.
	User string `json:"user,omitempty"`
	// Tags are the caller's labels for finding the session, at most [MaxTags].
	Tags map[string]string `json:"tags,omitempty"`
	// Template is the name of its template. Default: the worker's default template.
	Template string `json:"template,omitempty"`
	// Owner is the worker that runs the session.
	Owner string `json:"owner"`
	// Epoch grows by one with each change of owner and with each restart of the owner. Writes of an older epoch are refused.
	Epoch uint64 `json:"epoch"`
	// Provider is the provider of its sandboxes.
	Provider string `json:"provider"`
	// Image is the image of its sandboxes, when the first command named one.
	Image string `json:"image,omitempty"`
	// State is the state of its newest sandbox; empty before the first one is requested.
	State SandboxState `json:"state,omitempty"`
	// Sandbox is the id of its newest sandbox.
	Sandbox string `json:"sandbox,omitempty"`
	// Parked says that the sandbox was stopped because it was idle. The workspace is kept, and the next command creates a new
	// sandbox.
	Parked bool `json:"parked,omitempty"`
	// Terminating says that its sandbox is being ended and has not ended in its time. It stays so until nothing of it runs, also when its owner
	// restarts. It is not set in the last state of a session.
	Terminating bool `json:"terminating,omitempty"`
	// Bound says that a sandbox of it has run: its template, provider and image stay as they are. Until then a command or a place
	// request with others replaces them.
	Bound bool `json:"bound,omitempty"`
	// Workspace is the workspace's folder on the owner's disk.
	Workspace string `json:"workspace,omitempty"`
	// From is the thread with whose last version the workspace begins, as the template says.
	From string `json:"from,omitempty"`
	// Version is the last version of the workspace that was pushed or pulled.
	Version string `json:"version,omitempty"`
	// Messages is the number of messages sent to it.
	Messages int64 `json:"messages,omitempty"`
	// Usage is the sum of the tokens that its agents reported.
	Usage Usage `json:"usage,omitzero"`
	// Counted is the last occasion that Messages or Usage counts. An occasion that is repeated is not counted again.
	Counted string `json:"counted,omitempty"`
	// FailedHooks are the hooks that failed at its end. It is set in the last state of a session alone, as Unpushed is.
	FailedHooks []string `json:"failed_hooks,omitempty"`
	// Unpushed is why its workspace is not pushed. The owner keeps the workspace, and pushes again until that succeeds.
	Unpushed *Error `json:"unpushed,omitempty"`
	// ExitCode is that of the main process, whose end has ended the session: State is completed then. It is failed, and there is no exit code, when
	// that process was lost. It is set in the last state of a session alone.
	ExitCode *int `json:"exit_code,omitempty"`
	// WorkspaceUntil is when the owner removes the workspace unless the thread has a session again, or its push is owed, in UTC. It is set
	// in the last state of a session alone; zero for a workspace that is not there, or is kept without an end.
	WorkspaceUntil time.Time `json:"workspace_until,omitzero"`
	// Created and LastActivity are times by the owner's clock, in UTC.
	Created      time.Time `json:"created"`
	LastActivity time.Time `json:"last_activity"`
	// Expires is when the session ends unless a command runs before, in UTC; zero for never.
	Expires time.Time `json:"expires,omitzero"`
	// Deadline is when the session ends even if a command runs, in UTC; zero for never.
	Deadline time.Time `json:"deadline,omitzero"`
	// IdleTimeoutMS is the time from LastActivity to Expires, in milliseconds. Default 0: the template's, else the worker's.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
}

// Workspace is a workspace on a worker's disk.
type Workspace struct {
	// Tenant and Thread identify the thread, Worker the worker that has the folder.
	Tenant string `json:"tenant"`
	Thread string `json:"thread"`
	Worker string `json:"worker"`
	// Session, Template and User are those of the last session that is known to have used it.
	Session  string `json:"session,omitempty"`
	Template string `json:"template,omitempty"`
	User     string `json:"user,omitempty"`
	// InUse says that the thread has a session on this worker, and Owed that a push of the workspace is owed.
	InUse bool `json:"in_use,omitempty"`
	Owed  bool `json:"owed,omitempty"`
	// Files and Bytes are what it held when its session ended: files and folders, and the bytes of the files.
	Files int64 `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	// Ended is when its session ended, or when the worker found that it has none, in UTC.
	Ended time.Time `json:"ended,omitzero"`
	// Until is when the worker removes it, unless its push is owed then, in UTC; zero for never.
	Until time.Time `json:"until,omitzero"`
}

// SandboxInfo describes a sandbox to readers of events and to hooks.
type SandboxInfo struct {
	// ID is the sandbox's id.
	ID string `json:"id"`
	// Provider is the provider that created it.
	Provider string `json:"provider"`
	// State is its state.
	State SandboxState `json:"state,omitempty"`
	// Workspace is the workspace's folder as processes in the sandbox see it.
	Workspace string `json:"workspace,omitempty"`
	// StartMS is the time to create it, in milliseconds.
	StartMS float64 `json:"start_ms,omitempty"`
	// Error is why it failed.
	Error *Error `json:"error,omitempty"`
}
