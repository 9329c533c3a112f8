package schemas

import "time"

// SyncOp is an operation on the stored versions of a workspace.
type SyncOp string

// The operations.
const (
	SyncPush     SyncOp = "push"     // store the workspace as a new version
	SyncRestore  SyncOp = "restore"  // bring the workspace, or one path of it, back to a version
	SyncVersions SyncOp = "versions" // list the versions
)

// SyncOps lists every operation.
func SyncOps() []SyncOp { return []SyncOp{SyncPush, SyncRestore, SyncVersions} }

// MaxVersions is the most versions of one reply: the newest.
const MaxVersions = 1000

// SyncRequest is about the stored versions of the workspace of a session. It is sent on ctl.<thread>._.sync. The sandbox is started first, so that the
// workspace has been pulled.
type SyncRequest struct {
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// Op is the operation. Required.
	Op SyncOp `json:"op"`
	// At is the version to restore, after what is there has been pushed: its id, or a time (RFC 3339) for the newest one up to then. Required for restore.
	At string `json:"at,omitempty"`
	// Path is the only file or folder to restore, relative to the workspace. Nothing is deleted then, and the version does not become the newest.
	// Default: all, as a new version.
	Path string `json:"path,omitempty"`
}

// WorkspaceVersion is a stored version of a workspace.
type WorkspaceVersion struct {
	// ID is its name, which begins with its time.
	ID string `json:"id"`
	// Time is when it was pushed, in UTC.
	Time time.Time `json:"time"`
	// Current says that a new sandbox begins with it.
	Current bool `json:"current,omitempty"`
}

// DecodeSyncRequest decodes and validates a sync request, as strictly as [DecodeCommand] and with the same errors.
func DecodeSyncRequest(body []byte) (*SyncRequest, error) {
	return decodeRequest("sync request", body, (*SyncRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *SyncRequest) Validate() error {
	switch {
	case r.Op == "":
		return invalid("op", "missing: one of %v", SyncOps())
	case r.Op == SyncRestore && r.At == "":
		return invalid("at", "missing: name a version or a time")
	}
	return first(oneOf("op", r.Op, SyncOps()), checkOptionalID("session", r.Session), checkLabel("at", r.At, MaxFileNameBytes), checkFilePath("path", r.Path))
}
