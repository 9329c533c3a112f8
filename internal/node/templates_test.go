package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/schemas"
)

// A worker that says it is ready has published its templates: a list that was read right then lacked some.
func TestTemplatesArePublishedWhenAWorkerIsReady(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	o.templates = t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(o.templates, "mine.yaml"), []byte("name: mine\n"), 0o600))
	own, err := template.New(template.Config{Dir: o.templates})
	testkit.Must(t, err)
	var listed []*schemas.Template
	o.onReady = func() { listed, err = o.client.Templates(o.ctx) }
	o.worker("w1", o.connect(o))
	testkit.Must(t, err)
	testkit.Equal(t, "templates", names(listed), names(own.List()))
}

func names(list []*schemas.Template) (out []string) {
	for _, t := range list {
		out = append(out, t.Name)
	}
	return out
}
