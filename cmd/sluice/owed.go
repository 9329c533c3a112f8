package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// printOwed lists the pushes that are owed, if there are any.
func printOwed(m *Main, owed []schemas.OwedPush) error {
	if len(owed) == 0 {
		return nil
	}
	fmt.Fprintln(m.Stdout)
	t, now := m.list("no push is owed", "OWED PUSH OF…", "WORKER…", "SESSION", "FOR", "ATTEMPTS", "LAST ERROR…").leaveOut("SESSION", "ATTEMPTS", "WORKER", "FOR"), time.Now()
	for _, o := range owed {
		why := ""
		if o.Error != nil {
			why = o.Error.Message
		}
		t.row(o.Thread, o.Worker, o.Session, age(o.Since, now), fmt.Sprint(o.Attempts), why)
	}
	return t.print()
}

// printEnd reports the end of a session, and what is left to do after it.
func (g *globals) printEnd(s *schemas.Session) {
	fmt.Fprintf(g.Stdout, "session %s of thread %s has ended\n", oneLine(s.ID), oneLine(s.Thread))
	if len(s.FailedHooks) > 0 {
		g.notice("these hooks of its end failed: " + oneLine(strings.Join(s.FailedHooks, ", ")))
	}
	if s.Unpushed == nil && !s.WorkspaceUntil.IsZero() {
		g.notice(fmt.Sprintf("worker %s keeps its workspace until %s; `sluice workspace list` shows it", oneLine(s.Owner), localTime(s.WorkspaceUntil)))
	}
	if s.Unpushed != nil {
		g.notice(fmt.Sprintf("its workspace is not pushed yet: worker %s keeps it and pushes again until that succeeds; `sluice status` lists what is owed: %s",
			oneLine(s.Owner), oneLine(s.Unpushed.Message)))
	}
}
