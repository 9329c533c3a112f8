package schemas_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

func TestCodes(t *testing.T) {
	type code struct {
		target *schemas.Error
		status int
	}
	want := map[schemas.Code]code{
		"invalid_argument":  {schemas.ErrInvalidArgument, 400},
		"policy_denied":     {schemas.ErrPolicyDenied, 400},
		"unauthenticated":   {schemas.ErrUnauthenticated, 401},
		"permission_denied": {schemas.ErrPermissionDenied, 403},
		"not_found":         {schemas.ErrNotFound, 404},
		"session_expired":   {schemas.ErrSessionExpired, 404},
		"conflict":          {schemas.ErrConflict, 409},
		"too_large":         {schemas.ErrTooLarge, 413},
		"limit_exceeded":    {schemas.ErrLimitExceeded, 507},
		"pool_exhausted":    {schemas.ErrPoolExhausted, 503},
		"unavailable":       {schemas.ErrUnavailable, 503},
		"deadline_exceeded": {schemas.ErrDeadlineExceeded, 504},
		"lost":              {schemas.ErrLost, 502},
		"internal":          {schemas.ErrInternal, 500},
	}
	if len(schemas.Codes()) != len(want) {
		t.Errorf("Codes lists %d, want %d", len(schemas.Codes()), len(want))
	}
	for _, c := range schemas.Codes() {
		w, ok := want[c]
		if !ok {
			t.Errorf("%s is not in the contract", c)
			continue
		}
		if c.HTTPStatus() != w.status {
			t.Errorf("%s is HTTP %d, want %d", c, c.HTTPStatus(), w.status)
		}
		err := fmt.Errorf("around: %w", schemas.Errorf(c, "what happened"))
		for other, o := range want {
			if errors.Is(err, o.target) != (other == c) {
				t.Errorf("errors.Is(%s, target of %s) = %v", c, other, other != c)
			}
		}
		if schemas.CodeOf(err) != c {
			t.Errorf("CodeOf(%v) = %s", err, schemas.CodeOf(err))
		}
	}
	if got := schemas.Code("from_the_future").HTTPStatus(); got != 500 {
		t.Errorf("an unknown code is HTTP %d, want 500", got)
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	err := schemas.Errorf(schemas.CodeNotFound, "open %s: %w", "x", fs.ErrNotExist)
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, schemas.ErrNotFound) {
		t.Errorf("%v has lost its cause or its code", err)
	}
	if e := err.With("a", "b"); !errors.Is(e, fs.ErrNotExist) {
		t.Error("With loses the cause")
	}
	var back schemas.Error
	if e := json.Unmarshal(mustJSON(t, err), &back); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(&back, schemas.ErrNotFound) || errors.Is(&back, fs.ErrNotExist) || back.Error() != "open x: file does not exist" {
		t.Errorf("travelled it is %#v", back)
	}
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	first := schemas.Errorf(schemas.CodeConflict, "m").With("a", "1")
	second := first.With("a", "2").With("b", "3")
	if len(first.Details) != 1 || first.Details["a"] != "1" || second.Details["a"] != "2" || second.Details["b"] != "3" {
		t.Errorf("first %v, second %v", first.Details, second.Details)
	}
	_ = schemas.ErrConflict.With("a", "1")
	if schemas.ErrConflict.Details != nil {
		t.Error("With changed a target")
	}
}

func TestErrorText(t *testing.T) {
	if got := schemas.ErrLost.Error(); got != "lost" {
		t.Errorf("without a message: %q", got)
	}
	if got := schemas.Errorf(schemas.CodeLost, "gone").Error(); got != "gone" {
		t.Errorf("with a message: %q", got)
	}
}

// A target has no message: two real errors of one code are not the same.
func TestErrorsOfOneCodeDiffer(t *testing.T) {
	a, b := schemas.Errorf(schemas.CodeConflict, "a"), schemas.Errorf(schemas.CodeConflict, "b")
	if errors.Is(a, b) || !errors.Is(a, a) {
		t.Error("errors.Is compares messages away")
	}
}

func TestAsError(t *testing.T) {
	if schemas.AsError(nil) != nil || schemas.CodeOf(nil) != "" {
		t.Error("nil is no error")
	}
	coded := schemas.Errorf(schemas.CodeConflict, "m")
	if got := schemas.AsError(fmt.Errorf("around: %w", coded)); got != coded {
		t.Errorf("AsError = %v", got)
	}
	plain := fs.ErrClosed
	if got := schemas.AsError(plain); got.Code != schemas.CodeInternal || !errors.Is(got, plain) || got.Message != plain.Error() {
		t.Errorf("AsError of a plain error = %#v", got)
	}
	if schemas.CodeOf(plain) != schemas.CodeInternal {
		t.Error("a plain error is internal")
	}
}
