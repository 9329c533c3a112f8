package registry_test

import (
	"context"
	"errors"
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
	g, err := registry.New[*link.Sandbox, registry.Record]("test", dir, func(err error) { t.Log(err) })
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

// TestAttachWarnsOfWhatItCannotOpen: a sandbox that is not taken over is in no result, and its reason is known.
func TestAttachWarnsOfWhatItCannotOpen(t *testing.T) {
	dir := t.TempDir()
	var warned []string
	g, err := registry.New[*link.Sandbox, registry.Record]("test", dir, func(err error) { warned = append(warned, err.Error()) })
	testkit.Must(t, err)
	testkit.Must(t, g.Save(registry.Record{ID: "a", Spec: sandbox.Spec{ID: "a", Thread: "work"}, Name: "0123456789abcdef0123"}))
	found, err := g.Attach(t.Context(), func(context.Context, registry.Record) (*link.Sandbox, error) {
		return nil, errors.New("its socket is gone")
	})
	testkit.Must(t, err)
	testkit.Equal(t, "attached sandboxes", len(found), 0)
	testkit.Equal(t, "warnings", warned, []string{"provider test: sandbox a of thread work could not be taken over: its socket is gone"})
	files, err := os.ReadDir(filepath.Join(dir, "kept"))
	testkit.Must(t, err)
	testkit.Equal(t, "record files", len(files), 0)
}
