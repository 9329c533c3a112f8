package registry_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/registry"
	"github.com/sluice-dev/sluice/sandbox/supervisor/link"
)

func TestOrphansRemovesUnfinishedFiles(t *testing.T) {
	dir := t.TempDir()
	g, err := registry.New[*link.Sandbox, registry.Record]("test", dir)
	testkit.Must(t, err)
	want := registry.Record{ID: "a", Spec: sandbox.Spec{ID: "a"}, Name: "0123456789abcdef0123"}
	testkit.Must(t, g.Save(want))
	path := filepath.Join(dir, "kept", want.Name+".json")
	for _, file := range []string{path + ".tmp", filepath.Join(dir, "kept", "ffffffffffffffffffff.json.tmp"), filepath.Join(dir, "kept", "eeeeeeeeeeeeeeeeeeee.json")} {
		testkit.Must(t, os.WriteFile(file, []byte(`{"id":"a`), 0o600))
	}
	got, err := g.Orphans()
	testkit.Must(t, err)
	testkit.Equal(t, "records", got, []registry.Record{want})
	files, err := filepath.Glob(filepath.Join(dir, "kept", "*"))
	testkit.Must(t, err)
	testkit.Equal(t, "files", files, []string{path})
}
