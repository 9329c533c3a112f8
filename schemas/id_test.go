package schemas_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// The vectors were computed without this package. Clients in other languages test with the same file.
func TestProcessID(t *testing.T) {
	body, err := os.ReadFile("vectors/process-ids.json")
	testkit.Must(t, err)
	var vectors []struct{ Tenant, Thread, Key, Process string }
	testkit.Must(t, json.Unmarshal(body, &vectors))
	if len(vectors) < 5 {
		t.Fatalf("%d vectors, want at least 5", len(vectors))
	}
	for _, v := range vectors {
		got := schemas.ProcessID(v.Tenant, v.Thread, v.Key)
		if got != v.Process {
			t.Errorf("ProcessID(%q, %q, %q) = %s, want %s", v.Tenant, v.Thread, v.Key, got, v.Process)
		}
		if !schemas.ValidID(got) || len(got) != 26 {
			t.Errorf("%q is not a valid id of 26 characters", got)
		}
	}
}

func TestProcessIDSeparatesParts(t *testing.T) {
	for _, pair := range [][2][3]string{{{"a", "bc", "d"}, {"ab", "c", "d"}}, {{"a", "b", "cd"}, {"a", "bc", "d"}}} {
		x, y := pair[0], pair[1]
		if schemas.ProcessID(x[0], x[1], x[2]) == schemas.ProcessID(y[0], y[1], y[2]) {
			t.Errorf("%q and %q have the same process id", x, y)
		}
	}
}

func TestValidID(t *testing.T) {
	for _, good := range []string{"a", "A-z_09", "-", "_", strings.Repeat("x", schemas.MaxIDLength)} {
		if !schemas.ValidID(good) {
			t.Errorf("ValidID(%q) = false", good)
		}
		testkit.Must(t, schemas.CheckID("thread", good))
	}
	for _, bad := range []string{"", " ", "a.b", "a b", "*", ">", "a/b", "a\x00", "a\n", "é", "\xff", strings.Repeat("x", schemas.MaxIDLength+1), strings.Repeat("é", 500)} {
		if schemas.ValidID(bad) {
			t.Errorf("ValidID(%q) = true", bad)
		}
		err := schemas.CheckID("thread", bad)
		checkRefusal(t, err, "thread")
		if n := len(err.Error()); n > 300 {
			t.Errorf("CheckID(%q): the message is %d bytes, want at most 300", bad, n)
		}
	}
}
