package processor_test

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 2: a copy of a command in CMD that arrived after the command's end, and after the end of its session, made a new session.
func TestLateCopyMakesNoSession(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	cmd := command("k", sh("echo one"))
	first := c.exec(cmd)
	_, err := c.conn.StopSession(c.ctx, schemas.DefaultTenant, "t", schemas.StopRequest{})
	c.must(err)
	before := c.eventTypes("t")
	for _, durable := range []bool{true, false} {
		v, answers := w.deliver(cmd, durable, 1)
		equal(t, "action", v.Action, schemas.ActionDone)
		wantFields(t, c.terminal(answers), schemas.Result{Stdout: "one\n", Process: first.Process})
		v, answers = w.deliver(command("k", sh("echo other")), durable, 1)
		equal(t, "action", v.Action, schemas.ActionDead)
		wantFields(t, c.terminal(answers), schemas.Result{Error: coded(schemas.CodeConflict)})
	}
	c.wantEvents("t", before...)
	_, _, err = c.conn.Session(c.ctx, schemas.DefaultTenant, "t")
	testkit.WantCode(t, err, schemas.CodeNotFound)
	// A new command makes one.
	wantFields(t, c.exec(command("k2", sh("echo two"))), schemas.Result{Stdout: "two\n"})
}
