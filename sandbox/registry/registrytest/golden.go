package registrytest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/schemas"
)

// Record is what the golden files of all providers have in common.
func Record() registry.Record {
	return registry.Record{ID: "s-1", Name: "0123456789abcdef0123", Spec: sandbox.Spec{
		ID: "s-1", Thread: "thread-1", Workspace: "/var/lib/sluice/workspaces/thread-1", Env: map[string]string{"A": "b"},
		Limits: sandbox.Limits{
			MemoryBytes: 512 << 20, CPUs: 1, PIDs: 256, TmpBytes: 64 << 20, WorkspaceBytes: 500_000_000, WorkspaceFiles: 1000, FileBytes: 100_000_000,
		},
		Network: schemas.NetworkHost, Owner: `{"session":"x","epoch":3}`,
	}}
}

// Golden reads the file golden, which an earlier version wrote, as the record of an orphan. The result must be want, and saving it
// must give the same bytes: an earlier version can then read the files of this one.
func Golden[S registry.Sandbox, R any, P registry.Entry[R]](t *testing.T, golden string, want R) {
	t.Helper()
	body, err := os.ReadFile(golden)
	testkit.Must(t, err)
	dir := t.TempDir()
	g, err := registry.New[S, R, P]("test", dir, func(err error) { t.Error(err) })
	testkit.Must(t, err)
	path := filepath.Join(dir, "kept", Record().Name+".json")
	testkit.Must(t, os.WriteFile(path, body, 0o600))
	got, err := g.Orphans()
	testkit.Must(t, err)
	testkit.Equal(t, "records", got, []R{want})
	testkit.Must(t, g.Save(want))
	saved, err := os.ReadFile(path)
	testkit.Must(t, err)
	testkit.Equal(t, "saved file", string(saved), string(body))
}
