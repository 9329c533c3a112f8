package schemas

import (
	"errors"
	"fmt"
)

// Code names a kind of failure. The same codes are used on NATS, over HTTP, in MCP and, as [errors.Is]
// targets, in Go. A caller decides by the code; the message is for people.
type Code string

// The codes, each with the HTTP status it maps to (see [Code.HTTPStatus]).
const (
	CodeInvalidArgument  Code = "invalid_argument"  // 400: the request itself is wrong; sending it again will not help
	CodePolicyDenied     Code = "policy_denied"     // 400: a template's command policy refuses the command
	CodeUnauthenticated  Code = "unauthenticated"   // 401: no credentials, or wrong ones
	CodePermissionDenied Code = "permission_denied" // 403: known caller, but not allowed
	CodeNotFound         Code = "not_found"         // 404: no such thread, process, file or template
	CodeSessionExpired   Code = "session_expired"   // 404: the session was there and has ended
	CodeConflict         Code = "conflict"          // 409: the same key with another body, or a lost compare-and-swap
	CodeTooLarge         Code = "too_large"         // 413: the request or the file is over its limit
	CodeLimitExceeded    Code = "limit_exceeded"    // 507: a quota of the workspace, the output or the store is used up
	CodePoolExhausted    Code = "pool_exhausted"    // 503: no free slot or sandbox now
	CodeUnavailable      Code = "unavailable"       // 503: a part of the system cannot be reached
	CodeDeadlineExceeded Code = "deadline_exceeded" // 504: the time given ran out
	CodeLost             Code = "lost"              // 502: the worker went away in mid-run; how the process ended is not known
	CodeInternal         Code = "internal"          // 500: a fault of Sluice itself
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
	ErrLost             = &Error{Code: CodeLost}
	ErrInternal         = &Error{Code: CodeInternal}
)

var httpStatus = map[Code]int{
	CodeInvalidArgument: 400, CodePolicyDenied: 400, CodeUnauthenticated: 401, CodePermissionDenied: 403,
	CodeNotFound: 404, CodeSessionExpired: 404, CodeConflict: 409, CodeTooLarge: 413, CodeLimitExceeded: 507,
	CodePoolExhausted: 503, CodeUnavailable: 503, CodeDeadlineExceeded: 504, CodeLost: 502, CodeInternal: 500,
}

// HTTPStatus is the status an HTTP answer carries for this code; 500 for a code this version does not know.
func (c Code) HTTPStatus() int {
	if s, ok := httpStatus[c]; ok {
		return s
	}
	return httpStatus[CodeInternal]
}

// Final reports whether sending the same request again, to any worker, gets the same error. Retry and queue only what is not
// final.
func (c Code) Final() bool {
	switch c {
	case CodeInvalidArgument, CodePermissionDenied, CodeNotFound, CodeSessionExpired, CodeConflict:
		return true
	default:
		return false
	}
}

// DetailDeclined is the detail of an error by which one worker says no for itself alone: another one may say yes, and the
// queue waits for it.
const DetailDeclined = "declined"

// Codes lists every code, in the order of the constants above. The JSON Schemas take their enum from it.
func Codes() []Code {
	return []Code{
		CodeInvalidArgument, CodePolicyDenied, CodeUnauthenticated, CodePermissionDenied, CodeNotFound,
		CodeSessionExpired, CodeConflict, CodeTooLarge, CodeLimitExceeded, CodePoolExhausted,
		CodeUnavailable, CodeDeadlineExceeded, CodeLost, CodeInternal,
	}
}

// Error is a failure as it travels: in an event, in an answer, in a JSON file. It is also a Go error.
type Error struct {
	// Code is what a program decides by.
	Code Code `json:"code"`
	// Message says what happened, to what, and what to do next. It never holds a secret.
	Message string `json:"message"`
	// Details are further facts by name, such as "path" for a field that did not validate or "limit_bytes".
	Details map[string]string `json:"details,omitempty"`

	cause error
}

// Errorf makes an error with a code. %w keeps a cause for errors.Is and errors.As; the cause itself does not travel.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
}

// With returns a copy of e that has the further detail name=value.
func (e *Error) With(name, value string) *Error {
	c := *e
	c.Details = make(map[string]string, len(e.Details)+1)
	for k, v := range e.Details {
		c.Details[k] = v
	}
	c.Details[name] = value
	return &c
}

// Error is the message, or the code where there is none.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

// Unwrap is the cause given to [Errorf] by %w; nil once the error has travelled.
func (e *Error) Unwrap() error { return e.cause }

// Is makes two errors the same when their codes are, so that the Err… targets match whatever the message.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == ""
}

// CodeOf is the code of the first *Error in err's chain: "" for nil, CodeInternal where there is none.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// AsError is err as it would travel: the *Error in its chain, or a CodeInternal one with its text. nil gives nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error(), cause: err}
}
