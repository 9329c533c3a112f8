package registrytest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox/registry"
)

// name is the Record.Name in the golden files.
const name = "0123456789abcdef0123"

// Golden reads the file golden, which an earlier version wrote, as the record of an orphan. The result must be want, and saving it
// must give the same bytes: an earlier version can then read the files of this one.
func Golden[S registry.Sandbox, R any, P registry.Entry[R]](t *testing.T, golden string, want R) {
	t.Helper()
	body, err := os.ReadFile(golden)
	testkit.Must(t, err)
	dir := t.TempDir()
	g, err := registry.New[S, R, P]("test", dir)
	testkit.Must(t, err)
	path := filepath.Join(dir, "kept", name+".json")
	testkit.Must(t, os.WriteFile(path, body, 0o600))
	got, err := g.Orphans()
	testkit.Must(t, err)
	testkit.Equal(t, "records", got, []R{want})
	testkit.Must(t, g.Save(want))
	saved, err := os.ReadFile(path)
	testkit.Must(t, err)
	testkit.Equal(t, "saved file", string(saved), string(body))
}
