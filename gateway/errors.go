package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// refusal is an error whose response has further fields, as a documented endpoint has them.
type refusal struct {
	err    error
	text   string         // of the field error; empty for that of err
	status int            // 0 for that of err's code
	fields map[string]any // beside error, code, details and request_id
}

// Error is the text.
func (e *refusal) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *refusal) Unwrap() error { return e.err }

// status is the HTTP status of a code.
func status(code schemas.Code) int {
	switch code {
	case schemas.CodeInvalidArgument, schemas.CodePolicyDenied:
		return http.StatusBadRequest
	case schemas.CodeUnauthenticated:
		return http.StatusUnauthorized
	case schemas.CodePermissionDenied:
		return http.StatusForbidden
	case schemas.CodeNotFound, schemas.CodeSessionExpired:
		return http.StatusNotFound
	case schemas.CodeConflict:
		return http.StatusConflict
	case schemas.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case schemas.CodeLimitExceeded:
		return http.StatusInsufficientStorage
	case schemas.CodePoolExhausted, schemas.CodeUnavailable:
		return http.StatusServiceUnavailable
	case schemas.CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	case schemas.CodeCanceled:
		return 499
	case schemas.CodeLost:
		return http.StatusBadGateway
	default:
		return http.StatusInternalServerError
	}
}

// writeError writes the one shape of every error. A response that has begun is cut.
func writeError(w http.ResponseWriter, err error) {
	if out, ok := w.(*response); ok && out.status != 0 {
		panic(http.ErrAbortHandler)
	}
	e := schemas.AsError(err)
	answer := map[string]any{"error": e.Error(), "code": e.Code, "request_id": w.Header().Get(headerRequest)}
	if len(e.Details) > 0 {
		answer["details"] = e.Details
	}
	code := status(e.Code)
	if r, ok := errors.AsType[*refusal](err); ok {
		maps.Copy(answer, r.fields)
		answer["error"] = cmp.Or(r.text, e.Error())
		code = cmp.Or(r.status, code)
	}
	if after := e.Details[schemas.DetailRetryAfter]; isTokenLimit(err) {
		w.Header().Set("Retry-After", after)
		code = http.StatusTooManyRequests
	}
	switch e.Code {
	case schemas.CodeUnauthenticated:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	case schemas.CodePoolExhausted, schemas.CodeUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, code, answer)
}

// writeJSON writes a response. Its reader may have left: then no one gets it.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// readJSON decodes the body of a request, which is at most jsonBytes and arrives within the time of a pause. Errors: invalid_argument, too_large.
func (c *call) readJSON(into any) error {
	if kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the content type is %.60q: send application/json", c.r.Header.Get("Content-Type"))
	}
	if in, ok := c.r.Body.(*body); ok {
		in.until = time.Now().Add(in.pause) // it is held in memory meanwhile
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, jsonBytes))
	if err != nil {
		return bodyError(err)
	}
	return schemas.DecodeStrict("body", body, into)
}

// bodyError is the error of a body that could not be read.
func bodyError(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return schemas.Errorf(schemas.CodeTooLarge, "the body has more than %d bytes", large.Limit)
	}
	if e, ok := errors.AsType[*schemas.Error](err); ok {
		return e // of a reader before
	}
	return schemas.Errorf(schemas.CodeInvalidArgument, "read the body: %w", err)
}
