package schemas

import "time"

// SandboxState is where a sandbox stands in its life; package processor draws the machine.
type SandboxState string

// The states. From each one that is not final, the sandbox can be terminated.
const (
	SandboxPending    SandboxState = "pending"    // asked for, nothing made yet
	SandboxCreating   SandboxState = "creating"   // its provider makes it, cold-start hooks run
	SandboxRunning    SandboxState = "running"    // commands run in it
	SandboxCompleted  SandboxState = "completed"  // ended by itself, or parked; final
	SandboxFailed     SandboxState = "failed"     // could not be made, or broke; final
	SandboxTerminated SandboxState = "terminated" // ended by somebody's wish; final
)

// SandboxStates lists every state.
func SandboxStates() []SandboxState {
	return []SandboxState{SandboxPending, SandboxCreating, SandboxRunning, SandboxCompleted, SandboxFailed, SandboxTerminated}
}

// Final says whether no other state may follow.
func (s SandboxState) Final() bool {
	return s == SandboxCompleted || s == SandboxFailed || s == SandboxTerminated
}

// Session is a thread's claim on a sandbox and a workspace. It is kept in KV and changed by compare-and-swap alone.
type Session struct {
	// ID is a ULID.
	ID string `json:"id"`
	// Tenant and Thread are its key.
	Tenant string `json:"tenant"`
	Thread string `json:"thread"`
	// User is whom the caller named as its user; empty where nobody did. It is a label, not a right.
	User string `json:"user,omitempty"`
	// Tags are the caller's labels, to find it again by: at most [MaxTags].
	Tags map[string]string `json:"tags,omitempty"`
	// Template is the recipe it was made from; empty for the worker's own default.
	Template string `json:"template,omitempty"`
	// Owner is the worker that runs it.
	Owner string `json:"owner"`
	// Epoch grows by one with each change of owner, and with each restart of one: what an older epoch publishes is refused.
	Epoch uint64 `json:"epoch"`
	// Provider is the kind of its sandbox.
	Provider string `json:"provider"`
	// Image is what the sandbox's root is made from, where the first command asked for one.
	Image string `json:"image,omitempty"`
	// State is its sandbox's; empty before the first one is asked for.
	State SandboxState `json:"state,omitempty"`
	// Sandbox is the newest sandbox's id.
	Sandbox string `json:"sandbox,omitempty"`
	// Parked says that the sandbox was stopped because nothing ran in it: the workspace is kept, and the next command makes
	// another.
	Parked bool `json:"parked,omitempty"`
	// Workspace is the folder on the owner's disk.
	Workspace string `json:"workspace,omitempty"`
	// Version is the last version of the workspace that was pushed.
	Version string `json:"version,omitempty"`
	// Messages counts the messages it was sent, and Usage what their agents said they used.
	Messages int64 `json:"messages,omitempty"`
	Usage    Usage `json:"usage,omitzero"`
	// Counted is the occasion that was counted last in them, so that one which is delivered again is not counted twice.
	Counted string `json:"counted,omitempty"`
	// Created and LastActivity are by the owner's clock, in UTC.
	Created      time.Time `json:"created"`
	LastActivity time.Time `json:"last_activity"`
	// Expires is when it ends if nothing runs until then, in UTC; zero for never.
	Expires time.Time `json:"expires,omitzero"`
	// Deadline is when it ends whatever runs, in UTC; zero for never.
	Deadline time.Time `json:"deadline,omitzero"`
	// IdleTimeoutMS is what Expires is reckoned from, in milliseconds; 0 for the template's or the worker's.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
}

// Limits on what a caller says of a session.
const (
	// MaxTags is how many tags a session may have, and MaxTagBytes how long each name and value may be.
	MaxTags     = 32
	MaxTagBytes = 256
	// MaxUserBytes is the longest user.
	MaxUserBytes = 256
)

// Usage is what an agent said it used, in tokens.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// Add is the sum of both.
func (u Usage) Add(v Usage) Usage {
	return Usage{InputTokens: u.InputTokens + v.InputTokens, OutputTokens: u.OutputTokens + v.OutputTokens}
}

// SandboxInfo tells of a sandbox in events, and to hooks.
type SandboxInfo struct {
	// ID is the sandbox's id.
	ID string `json:"id"`
	// Provider is its kind.
	Provider string `json:"provider"`
	// State is where it stands.
	State SandboxState `json:"state,omitempty"`
	// Workspace is the folder the processes see.
	Workspace string `json:"workspace,omitempty"`
	// StartMS is how long making it took, in milliseconds.
	StartMS float64 `json:"start_ms,omitempty"`
	// Error says why it failed.
	Error *Error `json:"error,omitempty"`
}

// StopRequest asks for the end of a session. It travels on ctl.<thread>._.stop.
type StopRequest struct {
	// Session is the id it must have; empty for whichever the thread has. Another one is session_expired.
	Session string `json:"session,omitempty"`
	// GraceMS is the time between SIGTERM and SIGKILL for what runs, in milliseconds. Default, for a missing one: 10 s.
	GraceMS *int64 `json:"grace_ms,omitempty"`
	// Snapshot pushes the workspace as a version before the end. A push that fails keeps the session.
	Snapshot bool `json:"snapshot,omitempty"`
	// Delete removes the workspace's folder from the worker too. What was pushed stays.
	Delete bool `json:"delete,omitempty"`
}

// RenewRequest moves a session's expiry on. It travels on ctl.<thread>._.renew.
type RenewRequest struct {
	// Session is as in StopRequest.
	Session string `json:"session,omitempty"`
	// IdleTimeoutMS is the new idle timeout, in milliseconds; 0 leaves it as it is.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
}

// StartRequest asks for a session's sandbox to be made, with its cold-start hooks, where it has none. It travels on
// ctl.<thread>._.start.
type StartRequest struct {
	// Session is as in StopRequest.
	Session string `json:"session,omitempty"`
}

// SessionReply answers a request about a session.
type SessionReply struct {
	// Session is the session, as it is now or last was.
	Session *Session `json:"session,omitempty"`
	// Error says why it was not done.
	Error *Error `json:"error,omitempty"`
}
