package schemas_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// The vectors were computed apart from this package. Clients in other languages check themselves against the same file.
func TestProcessID(t *testing.T) {
	body, err := os.ReadFile("vectors/process-ids.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Tenant, Thread, Key, Process string }
	if err := json.Unmarshal(body, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 5 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		got := schemas.ProcessID(v.Tenant, v.Thread, v.Key)
		if got != v.Process {
			t.Errorf("ProcessID(%q, %q, %q) = %s, want %s", v.Tenant, v.Thread, v.Key, got, v.Process)
		}
		if !schemas.ValidID(got) || len(got) != 26 {
			t.Errorf("%q is not an id of 26 characters", got)
		}
	}
}

func TestProcessIDsDoNotRunTogether(t *testing.T) {
	if schemas.ProcessID("a", "bc", "d") == schemas.ProcessID("ab", "c", "d") || schemas.ProcessID("a", "b", "cd") == schemas.ProcessID("a", "bc", "d") {
		t.Error("the parts of a process's id run together")
	}
}

func TestValidID(t *testing.T) {
	for _, good := range []string{"a", "A-z_09", "-", "_", strings.Repeat("x", schemas.MaxIDLength)} {
		if !schemas.ValidID(good) || schemas.CheckID("thread", good) != nil {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", " ", "a.b", "a b", "*", ">", "a/b", "a\x00", "a\n", "é", "\xff", strings.Repeat("x", schemas.MaxIDLength+1), strings.Repeat("é", 500)} {
		err := schemas.CheckID("thread", bad)
		e, ok := errors.AsType[*schemas.Error](err)
		if schemas.ValidID(bad) || !ok || e.Code != schemas.CodeInvalidArgument || e.Details["path"] != "thread" {
			t.Errorf("%q gives %v", bad, err)
			continue
		}
		if len(e.Message) > 300 || !json.Valid(mustJSON(t, e)) {
			t.Errorf("%q: the message is %d bytes", bad, len(e.Message))
		}
	}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}
