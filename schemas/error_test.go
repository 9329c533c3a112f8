package schemas_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestCodes(t *testing.T) {
	want := []struct {
		code   schemas.Code
		target *schemas.Error
		final  bool
		again  bool // Promises 12: the same key may run again
	}{
		{"invalid_argument", schemas.ErrInvalidArgument, true, false},
		{"policy_denied", schemas.ErrPolicyDenied, false, false},
		{"unauthenticated", schemas.ErrUnauthenticated, false, false},
		{"permission_denied", schemas.ErrPermissionDenied, true, false},
		{"not_found", schemas.ErrNotFound, true, false},
		{"session_expired", schemas.ErrSessionExpired, true, false},
		{"conflict", schemas.ErrConflict, true, false},
		{"too_large", schemas.ErrTooLarge, false, false},
		{"limit_exceeded", schemas.ErrLimitExceeded, false, true},
		{"pool_exhausted", schemas.ErrPoolExhausted, false, true},
		{"unavailable", schemas.ErrUnavailable, false, true},
		{"deadline_exceeded", schemas.ErrDeadlineExceeded, false, true},
		{"canceled", schemas.ErrCanceled, true, false},
		{"lost", schemas.ErrLost, false, false},
		{"damaged", schemas.ErrDamaged, true, false},
		{"internal", schemas.ErrInternal, false, true},
	}
	var codes []schemas.Code
	for _, w := range want {
		codes = append(codes, w.code)
		if got := w.code.Final(); got != w.final {
			t.Errorf("%s: Final() = %v, want %v", w.code, got, w.final)
		}
		if got := w.code.Retryable(); got != w.again {
			t.Errorf("%s: Retryable() = %v, want %v", w.code, got, w.again)
		}
		err := fmt.Errorf("around: %w", schemas.Errorf(w.code, "what failed"))
		if got := schemas.CodeOf(err); got != w.code {
			t.Errorf("CodeOf(%v) = %s, want %s", err, got, w.code)
		}
		for _, other := range want {
			if got := errors.Is(err, other.target); got != (other.code == w.code) {
				t.Errorf("errors.Is(%s, target of %s) = %v", w.code, other.code, got)
			}
		}
	}
	testkit.Equal(t, "Codes()", schemas.Codes(), codes)
}

func TestErrorKeepsCause(t *testing.T) {
	err := schemas.Errorf(schemas.CodeNotFound, "open %s: %w", "x", fs.ErrNotExist)
	for _, target := range []error{fs.ErrNotExist, schemas.ErrNotFound} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
	if e := err.With("a", "b"); !errors.Is(e, fs.ErrNotExist) {
		t.Error("With drops the cause")
	}
	var decoded schemas.Error
	testkit.Must(t, json.Unmarshal(mustJSON(t, err), &decoded))
	if !errors.Is(&decoded, schemas.ErrNotFound) {
		t.Errorf("decoded error has code %s, want not_found", decoded.Code)
	}
	if errors.Is(&decoded, fs.ErrNotExist) {
		t.Error("decoded error has a cause")
	}
	if got := decoded.Error(); got != "open x: file does not exist" {
		t.Errorf("decoded message = %q", got)
	}
}

func TestErrorWithCopies(t *testing.T) {
	original := schemas.Errorf(schemas.CodeConflict, "m").With("a", "1")
	changed := original.With("a", "2").With("b", "3")
	testkit.Equal(t, "details of the original", original.Details, map[string]string{"a": "1"})
	testkit.Equal(t, "details of the copy", changed.Details, map[string]string{"a": "2", "b": "3"})
	_ = schemas.ErrConflict.With("a", "1")
	if got := schemas.ErrConflict.Details; got != nil {
		t.Errorf("With changed a target: its details are %v", got)
	}
}

func TestErrorText(t *testing.T) {
	if got := schemas.ErrLost.Error(); got != "lost" {
		t.Errorf("text of an error without a message = %q, want lost", got)
	}
	if got := schemas.Errorf(schemas.CodeLost, "gone").Error(); got != "gone" {
		t.Errorf("text = %q, want gone", got)
	}
}

// Only targets, which have no message, match by code alone.
func TestErrorsOfOneCodeDiffer(t *testing.T) {
	a, b := schemas.Errorf(schemas.CodeConflict, "a"), schemas.Errorf(schemas.CodeConflict, "b")
	if errors.Is(a, b) {
		t.Error("errors with different messages are the same")
	}
	if !errors.Is(a, a) {
		t.Error("an error is not itself")
	}
}

func TestAsError(t *testing.T) {
	if got := schemas.AsError(nil); got != nil {
		t.Errorf("AsError(nil) = %v, want nil", got)
	}
	if got := schemas.CodeOf(nil); got != "" {
		t.Errorf("CodeOf(nil) = %s, want none", got)
	}
	coded := schemas.Errorf(schemas.CodeConflict, "m")
	if got := schemas.AsError(fmt.Errorf("around: %w", coded)); got != coded {
		t.Errorf("AsError of a wrapped *Error = %v, want the *Error", got)
	}
	plain := fs.ErrClosed
	got := schemas.AsError(plain)
	if !errors.Is(got, plain) {
		t.Error("AsError of a plain error drops it")
	}
	testkit.Equal(t, "message", got.Message, plain.Error())
	testkit.Equal(t, "code", got.Code, schemas.CodeInternal)
	testkit.Equal(t, "CodeOf", schemas.CodeOf(plain), schemas.CodeInternal)
}

// The constants, Codes and the table of the contract list the same codes, with the same HTTP statuses.
func TestCodesAreListedAndDocumented(t *testing.T) {
	rows := func(file, row string) (codes []schemas.Code, statuses []string) {
		t.Helper()
		body, err := os.ReadFile(file)
		testkit.Must(t, err)
		for _, m := range regexp.MustCompile(row).FindAllStringSubmatch(string(body), -1) {
			codes, statuses = append(codes, schemas.Code(m[1])), append(statuses, m[2])
		}
		return codes, statuses
	}
	declared, want := rows("error.go", `(?m)^\tCode\w+ +Code += "(\w+)" +// (\d{3}):`)
	testkit.Equal(t, "Codes", schemas.Codes(), declared)
	documented, got := rows("../docs/contract.md", `(?m)^\| (\w+) \| (\d{3}) \|`)
	testkit.Equal(t, "codes in docs/contract.md", documented, declared, cmpopts.SortSlices(cmp.Less[schemas.Code]))
	byCode := func(codes []schemas.Code, statuses []string) map[schemas.Code]string {
		m := make(map[schemas.Code]string)
		for i, c := range codes {
			m[c] = statuses[i]
		}
		return m
	}
	testkit.Equal(t, "statuses in docs/contract.md", byCode(documented, got), byCode(declared, want))
}
