package run

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/internal/publisher"
	"github.com/sluice-dev/sluice/processor/internal/session"
	"github.com/sluice-dev/sluice/schemas"
)

// A caller may have the end of a process before its run is gone. Then the process cannot be controlled any more.
func TestEndedProcessCannotBeControlled(t *testing.T) {
	run := &Run{thread: &session.Thread{Tenant: "default", ID: "t"}, process: "p", exec: &schemas.Exec{TTY: true}, left: make(chan struct{})}
	rs := &Runs{publisher: &publisher.Publisher{LeaseHeld: func() bool { return true }}, runs: map[string]*Run{key("default", "p"): run}}
	for what, ctl := range map[string]schemas.Control{
		"kill":   {Kill: &schemas.KillRequest{}},
		"signal": {Signal: &schemas.SignalRequest{Signal: "SIGTERM"}},
		"resize": {Resize: &schemas.TerminalSize{Rows: 1, Cols: 1}},
		"stdin":  {Stdin: &schemas.StdinPiece{}},
	} {
		ctl.Tenant, ctl.Thread, ctl.Process = "default", "t", "p"
		t.Run(what, func(t *testing.T) {
			rs.Control(ctl, func(err error) { testkit.WantCode(t, err, schemas.CodeNotFound) })
		})
	}
}
