package schemas

import "time"

// SyncOp is an operation on the stored versions of a workspace.
type SyncOp string

// The operations.
const (
	SyncPush     SyncOp = "push"     // store the workspace as a new version
	SyncRestore  SyncOp = "restore"  // bring the workspace, or one path of it, back to a version
	SyncVersions SyncOp = "versions" // list the versions
	SyncDiff     SyncOp = "diff"     // compare the workspace, or one file of it, with a version
)

// SyncOps lists every operation.
func SyncOps() []SyncOp { return []SyncOp{SyncPush, SyncRestore, SyncVersions, SyncDiff} }

// Changes reports whether the operation changes the workspace or what is stored of it.
func (o SyncOp) Changes() bool { return o == SyncPush || o == SyncRestore }

// Bounds of one reply.
const (
	// MaxVersions is the most versions: the newest.
	MaxVersions = 1000
	// MaxChanges is the most paths that differ: the first by name.
	MaxChanges = 1000
	// MaxDiffBytes is the size of the largest file that is compared line by line, in bytes.
	MaxDiffBytes = 256 << 10
)

// SyncRequest is about the stored versions of the workspace of a session. It is sent on ctl.<thread>._.sync. The sandbox is started first, so that the
// workspace has been pulled.
type SyncRequest struct {
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// Op is the operation. Required.
	Op SyncOp `json:"op"`
	// At is the version to restore, after what is there has been pushed, or to compare a file with: its id, or a time (RFC 3339) for the newest one
	// up to then. Required for restore. Default for diff: the current one.
	At string `json:"at,omitempty"`
	// Path is the only file or folder to restore, relative to the workspace. Nothing is deleted then, and the version does not become the newest.
	// Default: all, as a new version. For diff it is the file to compare line by line. Default: all files are compared with the current version, whole.
	Path string `json:"path,omitempty"`
}

// WorkspaceDiff is how a workspace, or one file of it, differs from a version.
type WorkspaceDiff struct {
	// Changes are the paths that differ, in order, at most [MaxChanges] and 128 KiB of paths. They are null for one file.
	Changes []WorkspaceChange `json:"changes,omitempty"`
	// Count is how many paths differ; for one file 0 or 1.
	Count int64 `json:"count"`
	// Text is how the file differs, in the unified format of diff with three lines of context. It is empty for a file that does not.
	Text string `json:"text,omitempty"`
	// Omitted is why a file that differs has no text: "binary", or "too_large" for a file of more than [MaxDiffBytes], or a text of more than 128 KiB.
	Omitted DiffOmission `json:"omitted,omitempty"`
}

// DiffOmission is why a file is not compared line by line.
type DiffOmission string

// The reasons.
const (
	DiffBinary   DiffOmission = "binary"    // it is not UTF-8, or has a zero byte
	DiffTooLarge DiffOmission = "too_large" // it, or what differs, is too large
)

// DiffOmissions lists every reason.
func DiffOmissions() []DiffOmission { return []DiffOmission{DiffBinary, DiffTooLarge} }

// WorkspaceChange is a path of a workspace that differs from a version.
type WorkspaceChange struct {
	// Path is relative to the workspace.
	Path string `json:"path"`
	// What was done to it since: "added", "changed" or "deleted".
	What string `json:"what"`
	// Type is "file", "folder" or "symlink".
	Type string `json:"type"`
	// Size is that of the file in the workspace, in bytes.
	Size int64 `json:"size,omitempty"`
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
	case r.Op == SyncDiff && r.At != "" && r.Path == "":
		return invalid("path", "missing: only a file is compared with a version that is not the current one")
	}
	return first(oneOf("op", r.Op, SyncOps()), checkOptionalID("session", r.Session), checkLabel("at", r.At, MaxFileNameBytes), checkFilePath("path", r.Path))
}
