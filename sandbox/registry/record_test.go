package registry_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
)

// What a writer left that was killed at any step goes, and what it had finished stays.
func TestLeftCleansUp(t *testing.T) {
	dir := t.TempDir()
	g, err := registry.New[*link.Sandbox]("test", dir)
	if err != nil {
		t.Fatal(err)
	}
	whole := registry.Record{ID: "a", Spec: sandbox.Spec{ID: "a"}, Name: "0123456789abcdef0123", PID: 1, Start: 2}
	if err := g.Save(whole); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kept", whole.Name+".json")
	for _, name := range []string{path + ".tmp", filepath.Join(dir, "kept", "ffffffffffffffffffff.json.tmp"), filepath.Join(dir, "kept", "eeeeeeeeeeeeeeeeeeee.json")} {
		if err := os.WriteFile(name, []byte(`{"id":"a`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, err := g.Left()
	if err != nil || len(left) != 1 || left[0].ID != whole.ID || left[0].Name != whole.Name || left[0].PID != 1 || left[0].Start != 2 {
		t.Errorf("%+v, %v", left, err)
	}
	if there, err := filepath.Glob(filepath.Join(dir, "kept", "*")); err != nil || len(there) != 1 || there[0] != path {
		t.Error(there, err)
	}
}
