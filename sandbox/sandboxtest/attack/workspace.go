package attack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// Ways past the limits of a workspace, and past its removal.
var workspaceAttacks = []attack{
	{"BlocksBeyondTheEnd", "blocks that a file has beyond its end count", func(t *testing.T, f *fixture) { f.wantOverLimit(t, "keepsize") }},
	{"DeepFolders", "files below 300 folders count, or those folders are over the limit", func(t *testing.T, f *fixture) { f.wantOverLimit(t, "deep") }},
	{"UnreadableFolders", "files in folders that deny their owner everything count, or those folders are over the limit", func(t *testing.T, f *fixture) {
		f.wantOverLimit(t, "unreadable")
	}},
	{"Project", "no file leaves the project by which the file system counts it", func(t *testing.T, f *fixture) {
		for name, what := range f.probe(t, "project") {
			if name == "read the flags" {
				testkit.Equal(t, name, what, done)
			} else {
				testkit.Equal(t, name, what, "EPERM") // of the filter: the file system would do it
			}
		}
	}},
	{"ManySmallFiles", "empty files count by number", func(t *testing.T, f *fixture) { f.wantOverLimit(t, "small") }},
}

// another creates a sandbox beside the attacker's, with its limits and a probe of its own.
func (f *fixture) another(t *testing.T, id string) sandbox.Sandbox {
	t.Helper()
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join(f.workspace, "probe"))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "probe"), b, 0o755))
	return f.create(t, sandbox.Spec{ID: id, Workspace: dir, Limits: attackerLimits()})
}

// wantOverLimit has the probe fill a workspace beyond its limit and wait, and wants it killed for that. The next command removes what it made.
func (f *fixture) wantOverLimit(t *testing.T, group string) {
	t.Helper()
	s := f.another(t, group)
	r := f.run(t, s, sandbox.Command{Path: "./probe", Args: []string{group}, Timeout: testkit.Timeout / 2})
	testkit.Equal(t, "exit reason", r.Reason, schemas.ReasonKilled)
	testkit.WantCode(t, r.Limit, schemas.CodeLimitExceeded)
	if r.Stderr != "" {
		t.Errorf("the probe failed: %s", r.Stderr)
	}
	r = f.run(t, s, sandbox.Command{Path: "sh", Args: []string{"-c", "[ ! -d closed ] || chmod 700 closed; rm -rf d closed f* [0-9]*"}})
	if r.Code != 0 {
		t.Errorf("the next command, which removes all: exit = %+v, stderr %s, want code 0", r.Exit, r.Stderr)
	}
	testkit.Must(t, s.Terminate(f.ctx, 0))
}
