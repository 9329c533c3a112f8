package run

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/schemas"
)

// A process that ends while the worker still decides on its command is launched, and is none that could not be recorded.
func TestLaunchedProcessMayHaveEnded(t *testing.T) {
	var ls launches
	command := &schemas.Delivery{Tenant: "a", Process: "p"}
	end, other := ls.begin(command), ls.begin(&schemas.Delivery{Tenant: "b", Process: "p"})
	run := &Run{thread: &session.Thread{Tenant: "a"}, process: "p"}
	ls.accepted(run)
	run.reportEnd(&schemas.Result{Error: schemas.Errorf(schemas.CodeInvalidArgument, "no such program")})
	p := &Process{end(), run.observe()}
	<-p.Ended()
	testkit.WantCode(t, p.Failure(), schemas.CodeInvalidArgument)
	if got := other(); got != nil {
		t.Errorf("a command that was not accepted has run %p, want none", got)
	}
	ls.accepted(run) // one that no launch waits for
	if got := ls.begin(command)(); got != nil {
		t.Errorf("a new launch has run %p of one before, want none", got)
	}
}
