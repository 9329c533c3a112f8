package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 7: no record of another command answers a call, whether it was there before the call, or is found or watched later.
func TestRecordOfAnotherCommandIsAConflict(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	mine, other := command("t", "k"), command("t", "k")
	other.Exec.Args = []string{"other"}

	call := c.call(t, mine) // no worker: it is queued
	testkit.WantCode(t, call.Verify(ctx), schemas.CodeNotFound)
	seq := c.append(t, recordOf(other, schemas.TypeProcessAccepted, "a", ""), 0)
	testkit.WantCode(t, call.Verify(ctx), schemas.CodeConflict)
	testkit.WantCode(t, errorOf(call.Next(ctx)), schemas.CodeConflict) // the record of a process that runs
	c.append(t, recordOf(other, schemas.TypeProcessExited, "e", ""), seq)
	testkit.WantCode(t, errorOf(call.Next(ctx)), schemas.CodeConflict) // watched, or read

	testkit.WantCode(t, errorOf(c.Send(ctx, schemas.DefaultTenant, mine)), schemas.CodeConflict)
	again := c.call(t, other)
	ev, err := again.Next(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "answer of the record", ev.ID, "e")
	testkit.Must(t, again.Verify(ctx))
}

// Promises 12: a rejection that may pass does not answer the command that is queued after it. The next one does.
func TestRejectionThatMayPassAnswersNoLaterCommand(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	cmd := command("t", "k")
	seq := c.append(t, recordOf(cmd, schemas.TypeProcessRejected, "first", schemas.CodeUnavailable), 0)
	call := c.call(t, cmd)
	ev, err := call.startWatch(ctx)
	if ev != nil || err != nil {
		t.Fatalf("answer = %+v, error %v; want none", ev, err)
	}
	seq = c.append(t, recordOf(cmd, schemas.TypeProcessAccepted, "a", ""), seq)
	c.append(t, recordOf(cmd, schemas.TypeProcessRejected, "second", schemas.CodeUnavailable), seq)
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "a second")

	// A rejection for good answers.
	final := command("t", "final")
	c.append(t, recordOf(final, schemas.TypeProcessRejected, "final", schemas.CodeInvalidArgument), 0)
	call = c.call(t, final)
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "final")
}
