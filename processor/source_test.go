package processor_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 13: a label names the thread whose workspace a session begins with. The session keeps it, and its cold start gets it.
func TestSessionBeginsWithAnotherThread(t *testing.T) {
	sync := &schemas.TemplateSync{Location: "file:///nowhere/{thread}"}
	review := &schemas.Template{Name: "review", Sync: sync, Workspace: &schemas.TemplateWorkspace{From: "thread/{label.source}"}}
	c, w, h := newTalk(t, review)
	labeled := func(key, source string) *schemas.Command {
		cmd := command(key, sh("true"))
		cmd.Template = "review"
		if source != "" {
			cmd.Labels = map[string]string{"source": source}
		}
		return cmd
	}
	_, err := c.conn.Send(c.ctx, schemas.DefaultTenant, labeled("none", ""))
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	equal(t, "field at fault", schemas.AsError(err).Details["path"], "labels")
	_, err = c.conn.Send(c.ctx, schemas.DefaultTenant, labeled("path", "../t9"))
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	// From the queue, too.
	w.wantAnswer(labeled("queued", ""), true, 1, schemas.ActionDone, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeInvalidArgument)})

	wantFields(t, c.exec(labeled("one", "t1")), schemas.Result{Success: true})
	equal(t, "source of the session", c.session().From, "t1")
	equal(t, "source in the cold start", h.once(t, schemas.PhaseColdStart).Conversation.From, "t1")
	wantFields(t, c.exec(labeled("two", "")), schemas.Result{Success: true})
	wantFields(t, c.exec(labeled("three", "t2")), schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeConflict)})
}

// Ten minutes 13: a read-only workspace reaches the provider; one that cannot make it read-only refuses it.
func TestReadOnlyWorkspaceNeedsAProvider(t *testing.T) {
	reader := &schemas.Template{Name: "reader", Workspace: &schemas.TemplateWorkspace{From: "thread/t1", Template: "writer", Mode: "read-only"}}
	c, _ := newRig(t, with(reader))
	cmd := command("k", sh("true"))
	cmd.Template = "reader"
	r := c.exec(cmd)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeInvalidArgument)})
	wantMessage(t, r.Error, "read-only")
}
