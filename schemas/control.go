package schemas

import "regexp"

// SignalPattern is the form of a signal's name. The sandbox decides whether the signal exists, since systems differ.
const SignalPattern = `^[A-Za-z0-9+-]{1,32}$`

var signalName = regexp.MustCompile(SignalPattern)

// SignalRequest sends a signal to a process group. It is sent on ctl.<thread>.<process>.signal.
type SignalRequest struct {
	// Signal is the signal's name, such as SIGINT, with or without SIG, or its number.
	Signal string `json:"signal"`
}

// KillRequest ends a process and its whole tree. It is sent on ctl.<thread>.<process>.kill.
type KillRequest struct {
	// GraceMS is the time between SIGTERM and SIGKILL, in milliseconds. Default 0: SIGKILL at once.
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// MaxTerminalSize is the most rows, and the most columns, of a terminal: many programs take memory for each cell.
const MaxTerminalSize = 4096

// The size of a terminal whose command names none.
const (
	DefaultRows = 24
	DefaultCols = 80
)

// TerminalSize is the size of a process's terminal, in characters. It is sent on ctl.<thread>.<process>.resize.
type TerminalSize struct {
	// Rows and Cols are the height and the width. Required; 1 to [MaxTerminalSize].
	Rows int64 `json:"rows"`
	Cols int64 `json:"cols"`
}

// Validate checks both numbers. The error is invalid_argument with the detail "path".
func (s TerminalSize) Validate() error {
	return first(checkTerminalSize("rows", s.Rows), checkTerminalSize("cols", s.Cols))
}

// ValidTerm reports whether a text can be the value of TERM: 1 to 64 letters, digits and . _ + -.
func ValidTerm(term string) bool { return terminalType.MatchString(term) }

var terminalType = regexp.MustCompile(`^[A-Za-z0-9._+-]{1,64}$`)

func checkTerminalSize(path string, n int64) error {
	if n < 1 || n > MaxTerminalSize {
		return invalid(path, "%d is not between 1 and %d", n, MaxTerminalSize)
	}
	return nil
}

// OpCancel is the last token of the subject of a cancel, cmd.<thread>.cancel. It is the operation of no command.
const OpCancel Op = "cancel"

// CancelRequest keeps a command from running, wherever it waits, and kills its process if it runs. It is sent on
// cmd.<thread>.cancel, and stored in CMD like a command.
type CancelRequest struct {
	// Process is the command's process id; see [ProcessID]. Required.
	Process string `json:"process"`
	// Fingerprint is the command's fingerprint. With it, the command is canceled also before CMD has it. Default: that of the command
	// in CMD.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// Cancel is a cancel as a worker receives it. Tenant and Thread are those of the subject.
type Cancel struct {
	Tenant, Thread string
	CancelRequest
}

// StdinPiece is input for a running process. It is sent on ctl.<thread>.<process>.stdin, as raw bytes and headers.
type StdinPiece struct {
	// Offset is the number of bytes of input before this piece.
	Offset int64
	// Data is the input.
	Data []byte
	// Writer is the id of the writer to a terminal. Each counts its own offsets, so that several can write. Default empty: the writer
	// without an id, the only one of a process without a terminal.
	Writer string
	// End closes the process's standard input after this piece.
	End bool
}

// Control is a control message as the thread's owner receives it. Exactly one of Signal, Kill, Stdin and Resize is set.
type Control struct {
	// Tenant, Thread and Process are those of the subject.
	Tenant, Thread, Process string

	Signal *SignalRequest
	Kill   *KillRequest
	Stdin  *StdinPiece
	Resize *TerminalSize
}

// StopRequest ends a session. It is sent on ctl.<thread>._.stop.
type StopRequest struct {
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// GraceMS is the time between SIGTERM and SIGKILL for running processes, in milliseconds. Default: the template's, else 10 s. A stop that joins
	// another one can shorten what that one has set, from then on.
	GraceMS *int64 `json:"grace_ms,omitempty"`
	// Snapshot pushes the workspace as a new version first. When the push fails, the session stays.
	Snapshot bool `json:"snapshot,omitempty"`
	// Delete also removes the workspace's folder from the worker. Pushed versions stay.
	Delete bool `json:"delete,omitempty"`
}

// RenewRequest extends a session's expiry. It is sent on ctl.<thread>._.renew.
type RenewRequest struct {
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// IdleTimeoutMS is the new idle timeout, in milliseconds. Default 0: unchanged.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
}

// StartRequest creates a session's sandbox and runs its cold-start hooks, unless the session has one. It is sent on
// ctl.<thread>._.start.
type StartRequest struct {
	// Session is the id that the session must have, else the request fails with session_expired. Default: any session.
	Session string `json:"session,omitempty"`
	// NoWait replies once the sandbox is requested; State and Sandbox of the reply's session are those of that sandbox. Default: the reply
	// comes when the sandbox runs, or has failed.
	NoWait bool `json:"no_wait,omitempty"`
}

// SessionReply is the reply to a request about a session.
type SessionReply struct {
	// Session is the session, or its last state.
	Session *Session `json:"session,omitempty"`
	// Sync is what a push or a restore has done, also one that failed.
	Sync *SyncReport `json:"sync,omitempty"`
	// Versions are the stored versions of the workspace, the newest first, for the operation that lists them.
	Versions []WorkspaceVersion `json:"versions,omitempty"`
	// Diff is how the workspace differs from a version, for the operation that compares them.
	Diff *WorkspaceDiff `json:"diff,omitempty"`
	// Error is why the request failed.
	Error *Error `json:"error,omitempty"`
}

// SessionControl is a request about a session as the thread's owner receives it. Exactly one of Stop, Renew, Start and Sync is set.
type SessionControl struct {
	// Tenant and Thread are those of the subject.
	Tenant, Thread string
	// Caller is where the answer goes. A request that is sent again has the same one.
	Caller string

	Stop  *StopRequest
	Renew *RenewRequest
	Start *StartRequest
	Sync  *SyncRequest
}

// PlaceRequest asks the workers to take a thread. It is sent on api.place; one worker replies.
type PlaceRequest struct {
	// Thread is the conversation.
	Thread string `json:"thread"`
	// Provider is the sandbox's provider. Default: the template's, else the worker's choice.
	Provider string `json:"provider,omitempty"`
	// Image is the sandbox's image, as in [Command].
	Image string `json:"image,omitempty"`
	// Template is the template of a new session. Default: the worker's default template. It is a conflict when the thread's
	// session has another template.
	Template string `json:"template,omitempty"`
	// User and Tags are those of a new session.
	User string            `json:"user,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
	// IdleTimeoutMS and MaxLifetimeMS are those of a new session, in milliseconds. Default 0: the template's.
	IdleTimeoutMS int64 `json:"idle_timeout_ms,omitempty"`
	MaxLifetimeMS int64 `json:"max_lifetime_ms,omitempty"`
	// Existing creates no session: the request fails with not_found when the thread has none.
	Existing bool `json:"existing,omitempty"`
	// Start creates the sandbox and runs its cold-start hooks before the reply.
	Start bool `json:"start,omitempty"`
	// WithoutRoom has a worker take the thread also when it has no room for a process. It is not a part of the message: a header says it.
	WithoutRoom bool `json:"-"`
	Origin
}

// PlaceReply names the owner of a thread.
type PlaceReply struct {
	// Worker is the owner.
	Worker string `json:"worker,omitempty"`
	// Session is the thread's session. Created says that this request created it.
	Session *Session `json:"session,omitempty"`
	Created bool     `json:"created,omitempty"`
	// Error is why no worker took the thread.
	Error *Error `json:"error,omitempty"`
}

// WorkspaceRemoval removes the workspace of a thread from the worker that has it. It is sent on api.workspace.<worker>.
type WorkspaceRemoval struct {
	// Thread is the conversation. It is a conflict when it has a session on the worker.
	Thread string `json:"thread"`
	// Unpushed removes the workspace although its push is owed, and gives that push up. Default: it is a conflict.
	Unpushed bool `json:"unpushed,omitempty"`
}

// DecodeWorkspaceRemoval decodes and validates a request to remove a workspace, as strictly as [DecodeCommand] and with the same errors.
func DecodeWorkspaceRemoval(body []byte) (*WorkspaceRemoval, error) {
	return decodeRequest("workspace removal", body, func(r *WorkspaceRemoval) error { return CheckID("thread", r.Thread) })
}

// DecodeSignalRequest decodes and validates a signal request, as strictly as [DecodeCommand] and with the same errors.
func DecodeSignalRequest(body []byte) (*SignalRequest, error) {
	return decodeRequest("signal request", body, (*SignalRequest).validate)
}

func (r *SignalRequest) validate() error {
	if !signalName.MatchString(r.Signal) {
		return invalid("signal", "%.40q is not a signal: use a name, such as SIGINT, or a number", r.Signal)
	}
	return nil
}

// DecodeKillRequest decodes and validates a kill request, as strictly as [DecodeCommand] and with the same errors.
func DecodeKillRequest(body []byte) (*KillRequest, error) {
	return decodeRequest("kill request", body, func(r *KillRequest) error { return checkMillis("grace_ms", r.GraceMS) })
}

// DecodeTerminalSize decodes and validates a resize request, as strictly as [DecodeCommand] and with the same errors.
func DecodeTerminalSize(body []byte) (*TerminalSize, error) {
	return decodeRequest("resize request", body, func(s *TerminalSize) error { return s.Validate() })
}

// FingerprintPattern is the form of a fingerprint.
const FingerprintPattern = `^[0-9a-f]{64}$`

var fingerprint = regexp.MustCompile(FingerprintPattern)

// DecodeCancelRequest decodes and validates a cancel request, as strictly as [DecodeCommand] and with the same errors.
func DecodeCancelRequest(body []byte) (*CancelRequest, error) {
	return decodeRequest("cancel request", body, (*CancelRequest).validate)
}

func (r *CancelRequest) validate() error {
	if r.Fingerprint != "" && !fingerprint.MatchString(r.Fingerprint) {
		return invalid("fingerprint", "%.40q is not a fingerprint: use that of a record", r.Fingerprint)
	}
	return CheckID("process", r.Process)
}

// DecodeStopRequest decodes and validates a stop request, as strictly as [DecodeCommand] and with the same errors.
func DecodeStopRequest(body []byte) (*StopRequest, error) {
	return decodeRequest("stop request", body, (*StopRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *StopRequest) Validate() error {
	if err := checkOptionalID("session", r.Session); err != nil || r.GraceMS == nil {
		return err
	}
	return checkMillis("grace_ms", *r.GraceMS)
}

// DecodeRenewRequest decodes and validates a renew request, as strictly as [DecodeCommand] and with the same errors.
func DecodeRenewRequest(body []byte) (*RenewRequest, error) {
	return decodeRequest("renew request", body, (*RenewRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *RenewRequest) Validate() error {
	return first(checkOptionalID("session", r.Session), checkMillis("idle_timeout_ms", r.IdleTimeoutMS))
}

// DecodeStartRequest decodes and validates a start request, as strictly as [DecodeCommand] and with the same errors.
func DecodeStartRequest(body []byte) (*StartRequest, error) {
	return decodeRequest("start request", body, func(r *StartRequest) error { return checkOptionalID("session", r.Session) })
}

// DecodePlaceRequest decodes and validates a place request, as strictly as [DecodeCommand] and with the same errors.
func DecodePlaceRequest(body []byte) (*PlaceRequest, error) {
	return decodeRequest("place request", body, (*PlaceRequest).Validate)
}

// Validate checks every field. The error is invalid_argument with the detail "path".
func (r *PlaceRequest) Validate() error {
	return first(
		CheckID("thread", r.Thread), checkOptionalID("provider", r.Provider), checkOptionalID("template", r.Template),
		checkLabel("user", r.User, MaxUserBytes), checkTags("tags", r.Tags), checkMillis("idle_timeout_ms", r.IdleTimeoutMS),
		checkMillis("max_lifetime_ms", r.MaxLifetimeMS), checkImage(r.Image), r.Origin.validate(),
	)
}

// decodeRequest decodes and validates a control or place request. what names it in errors.
func decodeRequest[T any](what string, body []byte, validate func(*T) error) (*T, error) {
	if len(body) > MaxControlBytes {
		return nil, Errorf(CodeTooLarge, "the %s is %d bytes, the limit is %d", what, len(body), MaxControlBytes)
	}
	r := new(T)
	if err := decodeStrict(what, body, r); err != nil {
		return nil, err
	}
	if err := validate(r); err != nil {
		return nil, err
	}
	return r, nil
}
