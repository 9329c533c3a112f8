package processor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/allow"
	"github.com/sluice-dev/sluice/schemas"
)

// A session gets only what the operator allows its tenant: when it begins, and with each sandbox after that.
func TestSessionsGetWhatTheOperatorAllows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "allow.yaml")
	write := func(body string) { testkit.Must(t, os.WriteFile(path, []byte(body), 0o600)) }
	write("tenants: {default: {templates: [default, open, image], networks: [none], images: []}}")
	lists, err := allow.New(path)
	testkit.Must(t, err)
	const own, ofTemplate = "registry:5000/worker", "127.0.0.1:5000/template"
	c, w := newRig(t, soon, with(
		&schemas.Template{Name: "default", Session: schemas.TemplateSession{ParkAfterMS: 20}}, &schemas.Template{Name: "open", Network: schemas.NetworkHost},
		&schemas.Template{Name: "image", Image: ofTemplate}, &schemas.Template{Name: "secret"},
	), func(cfg *processor.Config) { cfg.Allow, cfg.ImageProvider, cfg.Image = lists, "local", own })
	send := func(thread, key string, cmd schemas.Command, durable bool) *schemas.Result {
		exec := command(key, sh("true"))
		exec.Thread, exec.Template, exec.Image = thread, cmd.Template, cmd.Image
		_, answers := w.deliver(exec, durable, 1)
		return c.terminal(answers)
	}
	for thread, cmd := range map[string]schemas.Command{
		"template": {Template: "secret"}, "network": {Template: "open"}, "image": {Image: "debian:13"}, "address": {Image: "127.0.0.1:1/x"},
	} {
		for _, durable := range []bool{false, true} {
			r := send(thread, "k", cmd, durable)
			wantFields(t, r, failed(schemas.CodePermissionDenied))
			wantMessage(t, r.Error, "the file of --allow")
		}
		_, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, thread)
		testkit.WantCode(t, err, schemas.CodeNotFound)
	}
	equal(t, "sandboxes", len(w.provider.sandboxes()), 0)
	for thread, cmd := range map[string]schemas.Command{
		"own": {}, "own-named": {Image: own}, "of-template": {Template: "image"}, "of-template-named": {Template: "image", Image: ofTemplate},
	} {
		wantFields(t, send(thread, "k", cmd, false), schemas.Result{Reason: schemas.ReasonExited})
	}

	// A list that no longer has what a parked session has keeps it from its next sandbox.
	send("parked", "1", schemas.Command{}, false)
	all := w.provider.sandboxes()
	<-all[len(all)-1].Done()
	write("tenants: {default: {templates: [image]}}")
	use, err := lists.Read()
	testkit.Must(t, err)
	use()
	wantFields(t, send("parked", "2", schemas.Command{}, false), failed(schemas.CodePermissionDenied))
	equal(t, "sandboxes", len(w.provider.sandboxes()), len(all))
}
