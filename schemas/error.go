package schemas

import (
	"errors"
	"fmt"
	"maps"
)

// Code is a kind of failure, the same on NATS, over HTTP, in MCP and as an [errors.Is] target in Go. Programs decide by the code;
// the message is for people.
type Code string

// The codes. The number is the HTTP status that a gateway maps the code to; an unknown code maps to 500.
const (
	CodeInvalidArgument  Code = "invalid_argument"  // 400: the request is wrong; sending it again does not help
	CodePolicyDenied     Code = "policy_denied"     // 400: the template's command policy refuses the command
	CodeUnauthenticated  Code = "unauthenticated"   // 401: credentials are missing or wrong
	CodePermissionDenied Code = "permission_denied" // 403: the caller is known and may not do this
	CodeNotFound         Code = "not_found"         // 404: no such thread, process, file or template
	CodeSessionExpired   Code = "session_expired"   // 404: the session has ended
	CodeConflict         Code = "conflict"          // 409: the key was used with another body, or a compare-and-swap was lost
	CodeTooLarge         Code = "too_large"         // 413: the request or the file is over its limit
	CodeLimitExceeded    Code = "limit_exceeded"    // 507: a quota of the workspace, the output or the store is used up
	CodePoolExhausted    Code = "pool_exhausted"    // 503: no slot or sandbox is free now
	CodeUnavailable      Code = "unavailable"       // 503: a part of the system cannot be reached
	CodeDeadlineExceeded Code = "deadline_exceeded" // 504: the time limit was reached
	CodeCanceled         Code = "canceled"          // 499: a caller canceled the command
	CodeLost             Code = "lost"              // 502: the worker died during the run; the process's end is unknown
	CodeDamaged          Code = "damaged"           // 500: stored data is not what was written: its checksum does not match
	CodeInternal         Code = "internal"          // 500: a fault in Sluice
)

// Targets for errors.Is: errors.Is(err, schemas.ErrConflict) is true for every *Error with that code.
var (
	ErrInvalidArgument  = &Error{Code: CodeInvalidArgument}
	ErrPolicyDenied     = &Error{Code: CodePolicyDenied}
	ErrUnauthenticated  = &Error{Code: CodeUnauthenticated}
	ErrPermissionDenied = &Error{Code: CodePermissionDenied}
	ErrNotFound         = &Error{Code: CodeNotFound}
	ErrSessionExpired   = &Error{Code: CodeSessionExpired}
	ErrConflict         = &Error{Code: CodeConflict}
	ErrTooLarge         = &Error{Code: CodeTooLarge}
	ErrLimitExceeded    = &Error{Code: CodeLimitExceeded}
	ErrPoolExhausted    = &Error{Code: CodePoolExhausted}
	ErrUnavailable      = &Error{Code: CodeUnavailable}
	ErrDeadlineExceeded = &Error{Code: CodeDeadlineExceeded}
	ErrCanceled         = &Error{Code: CodeCanceled}
	ErrLost             = &Error{Code: CodeLost}
	ErrDamaged          = &Error{Code: CodeDamaged}
	ErrInternal         = &Error{Code: CodeInternal}
)

// Final reports whether the same request fails with the same error on every worker. Retry and queue only requests that failed
// with another code.
func (c Code) Final() bool {
	switch c {
	case CodeInvalidArgument, CodePermissionDenied, CodeNotFound, CodeSessionExpired, CodeConflict, CodeCanceled, CodeDamaged:
		return true
	default:
		return false
	}
}

// Retryable reports whether the cause may pass by itself. A process that was rejected with such a code never ran, so the same
// command may be sent again under the same key, and then runs.
func (c Code) Retryable() bool {
	switch c {
	case CodeLimitExceeded, CodePoolExhausted, CodeUnavailable, CodeDeadlineExceeded, CodeInternal:
		return true
	default:
		return false
	}
}

// DetailDeclined is the detail of an error with which one worker refuses a command for itself only. Another worker may accept
// the command, so it stays queued.
const DetailDeclined = "declined"

// DetailInputClosed is the detail of an error that a process reads no more input, now and later.
const DetailInputClosed = "input_closed"

// DetailWritten is the detail of an error about a piece of standard input that comes too early: how many bytes the process has taken.
const DetailWritten = "written"

// DeclinedUnserved is the value of DetailDeclined when the worker lacks what the command asks for: a provider or a template.
const DeclinedUnserved = "unserved"

// DeclinedFull is the value of DetailDeclined when the worker has no room for a process of the thread, or to take one more thread now.
const DeclinedFull = "full"

// DetailUnreadable is the detail of an error about a stored entry that does not decode; it names the entry. To try again does not help.
const DetailUnreadable = "unreadable"

// Codes lists every code.
func Codes() []Code {
	return []Code{
		CodeInvalidArgument, CodePolicyDenied, CodeUnauthenticated, CodePermissionDenied, CodeNotFound,
		CodeSessionExpired, CodeConflict, CodeTooLarge, CodeLimitExceeded, CodePoolExhausted,
		CodeUnavailable, CodeDeadlineExceeded, CodeCanceled, CodeLost, CodeDamaged, CodeInternal,
	}
}

// Error is a failure in an event or a reply.
type Error struct {
	// Code is the kind of failure. Programs decide by it.
	Code Code `json:"code"`
	// Message says what failed, why, and what to do. It is for people, and never holds a secret.
	Message string `json:"message"`
	// Details are named facts, such as "path" for the field that is not valid, or "limit_bytes".
	Details map[string]string `json:"details,omitempty"`

	cause error
}

// Errorf returns an error with a code. %w keeps a cause for errors.Is and errors.As; the cause is not encoded.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// LeaseLost is the lost error of a worker whose lease has expired or has passed to another incarnation: the worker must publish
// nothing more.
func LeaseLost(worker string) *Error {
	return Errorf(CodeLost, "worker %s lost its lease: another worker may take over what it ran", worker)
}

// KeyConflict is the conflict of a command whose key another command of the thread has used. The message leaves the key out, because
// logs hold it: with a known key, a fingerprint could be tried out.
func KeyConflict(thread string) *Error {
	return Errorf(CodeConflict, "this key was used for another command in thread %s: use a new key", thread)
}

// With returns a copy of e with the detail name=value added.
func (e *Error) With(name, value string) *Error {
	c := *e
	c.Details = make(map[string]string, len(e.Details)+1)
	maps.Copy(c.Details, e.Details)
	c.Details[name] = value
	return &c
}

// Error returns the message, or the code of an error without one.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Unwrap returns the cause that [Errorf] got by %w; nil for a decoded error.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target has the same code and no message, as the Err… targets have.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// CodeOf returns the code of the first *Error in err's chain: "" for nil, CodeInternal for a chain without one.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// AsError returns the first *Error in err's chain, or one with CodeInternal and err's text. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error(), cause: err}
}
