package processor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// origin is the labels and the trace context of a test's command.
func origin(user string) schemas.Origin {
	return schemas.Origin{
		Labels: map[string]string{"user": user}, TraceState: "vendor=" + user,
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}

// Ten minutes 12: the events of a command carry its template, labels and trace context, from the session that it creates to the finish.
func TestEventsCarryTheOriginOfTheirCommand(t *testing.T) {
	c, _, h := newTalk(t, agent(`echo "$TRACEPARENT $TRACESTATE"`))
	h.set(func(ctx context.Context, data schemas.HookData, _ string, exec hookExec) ([]string, error) {
		if data.Phase != schemas.PhaseMessage {
			return nil, nil
		}
		return nil, exec(ctx, []string{"sh", "-c", `[ "$TRACEPARENT" = ` + data.TraceParent + ` ] || exit 1`}, nil)
	})
	cmd := message("k", "hello")
	cmd.Origin = origin("ann")
	r := c.exec(cmd)
	equal(t, "environment of the agent", r.Stdout, cmd.TraceParent+" vendor=ann\n")
	f := c.streamFinish(cmd)
	output := c.awaitType(processOf(cmd), schemas.TypeProcessExited)
	c.awaitEvent(schemas.TypeSandboxRunning) // no command waits for it
	seen := map[schemas.EventType]bool{}
	for _, ev := range c.allEvents() {
		seen[ev.Type] = true
		testkit.Equal(t, "origin of "+string(ev.Type), ev.Origin, cmd.Origin)
		equal(t, "template of "+string(ev.Type), ev.Template, "agent")
	}
	for _, typ := range []schemas.EventType{
		schemas.TypeSessionCreated, schemas.TypeSandboxPending, schemas.TypeSandboxRunning, schemas.TypeColdStartFinished,
		schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited, schemas.TypeStreamFinished,
	} {
		if !seen[typ] {
			t.Errorf("no event %s", typ)
		}
	}
	for _, phase := range []schemas.Phase{schemas.PhaseColdStart, schemas.PhaseMessage, schemas.PhaseStreamFinish} {
		testkit.Equal(t, "origin in hooks of "+string(phase), h.once(t, phase).Origin, cmd.Origin)
	}
	// Where the answer is.
	const at = "sluice.v1.local.default."
	process := processOf(cmd)
	var exited schemas.Result
	c.must(output.Decode(&exited))
	equal(t, "answer without save-message", f.Answer, nil)
	testkit.Equal(t, "log", f.Log, &schemas.StreamRange{
		Stream: "sluice-local-LOG", Subject: at + "log.t." + process + ".stdout", FirstSeq: exited.Log.FirstSeq, LastSeq: exited.Log.LastSeq,
	})

	// Another command in the same session has its own, and none of the first one's.
	plain := command("k2", sh(`echo "<$TRACEPARENT>"; exit 3`))
	equal(t, "environment without a trace", c.exec(plain).Stdout, "<>\n")
	testkit.Equal(t, "origin of a plain command", c.awaitType(processOf(plain), schemas.TypeProcessExited).Origin, schemas.Origin{})
	_, err := c.stop(schemas.StopRequest{})
	c.must(err)
	equal(t, "template at the end", c.awaitEvent(schemas.TypeSessionTerminated).Template, "agent")
}

// Ten minutes 12: what a command's finish reports.
func TestStreamFinishReportsTheOutcome(t *testing.T) {
	c, _, h := newTalk(t, agent(`echo out; exit 3`))
	h.outcome = schemas.HookOutcome{Saved: 7}
	cmd := message("k", "hello")
	c.exec(cmd)
	f := c.streamFinish(cmd)
	wantFields(t, f, schemas.StreamFinish{Reason: schemas.ReasonExited, ExitCode: 3, Answer: &schemas.StreamRange{
		Stream: "sluice-local-MSG", Subject: "sluice.v1.local.default.msg.t." + processOf(cmd) + ".agent", FirstSeq: 7, LastSeq: 7,
	}})
	equal(t, "version of what was not pushed", f.Version, "")
}

// Ten minutes 12: a rejected command, and one that another worker or incarnation reports on, keep their labels and trace.
func TestOriginOutlivesTheWorker(t *testing.T) {
	c, w := newRig(t, hasty)
	cmd := command("k", sh(`echo on; until [ -e go ]; do sleep 0.02; done`))
	cmd.Origin = origin("ann")
	c.start(cmd, "on")
	w.crash()
	w.again()
	c.file("go")
	testkit.Equal(t, "origin of a process that was reattached", c.awaitType(processOf(cmd), schemas.TypeProcessExited).Origin, cmd.Origin)

	lost := command("lost", sh(`echo on; sleep 300`))
	lost.Origin = origin("bob")
	c2, w2 := newRig(t, hasty)
	c2.start(lost, "on")
	w2.die()
	c2.worker("w2", soon)
	ev := c2.awaitType(processOf(lost), schemas.TypeProcessLost)
	testkit.Equal(t, "origin of a lost process", ev.Origin, lost.Origin)
	equal(t, "template of a lost process", ev.Template, "default")
}

func TestRejectionCarriesTheOrigin(t *testing.T) {
	c, w := newRig(t)
	cmd := command("k", sh("true"))
	cmd.Origin, cmd.Session = origin("ann"), "01JWZ6Q2ZK3Q8F5T1V7X9B0C4D"
	v, answers := w.deliver(cmd, true, 1)
	equal(t, "action", v.Action, schemas.ActionDone)
	ev := <-answers
	equal(t, "type", ev.Type, schemas.TypeProcessRejected)
	testkit.Equal(t, "origin of a rejection", ev.Origin, cmd.Origin)
	testkit.Equal(t, "origin on record", c.awaitType(processOf(cmd), schemas.TypeProcessRejected).Origin, cmd.Origin)
	if !strings.HasPrefix(ev.TraceParent, "00-") {
		t.Error("no trace")
	}
}
