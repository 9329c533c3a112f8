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

	call, err := c.Send(ctx, schemas.DefaultTenant, mine) // no worker: it is queued
	testkit.Must(t, err)
	defer call.Close()
	testkit.WantCode(t, call.Verify(ctx), schemas.CodeNotFound)
	seq, err := c.Append(ctx, recordOf(other, schemas.TypeProcessAccepted, "a", ""), 0)
	testkit.Must(t, err)
	testkit.WantCode(t, call.Verify(ctx), schemas.CodeConflict)
	_, err = call.Next(ctx) // the record of a process that runs
	testkit.WantCode(t, err, schemas.CodeConflict)
	_, err = c.Append(ctx, recordOf(other, schemas.TypeProcessExited, "e", ""), seq)
	testkit.Must(t, err)
	_, err = call.Next(ctx) // watched, or read
	testkit.WantCode(t, err, schemas.CodeConflict)

	_, err = c.Send(ctx, schemas.DefaultTenant, mine)
	testkit.WantCode(t, err, schemas.CodeConflict)
	again, err := c.Send(ctx, schemas.DefaultTenant, other)
	testkit.Must(t, err)
	defer again.Close()
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
	seq, err := c.Append(ctx, recordOf(cmd, schemas.TypeProcessRejected, "first", schemas.CodeUnavailable), 0)
	testkit.Must(t, err)
	call, err := c.Send(ctx, schemas.DefaultTenant, cmd)
	testkit.Must(t, err)
	defer call.Close()
	ev, err := call.startWatch(ctx)
	if ev != nil || err != nil {
		t.Fatalf("answer = %+v, error %v; want none", ev, err)
	}
	seq, err = c.Append(ctx, recordOf(cmd, schemas.TypeProcessAccepted, "a", ""), seq)
	testkit.Must(t, err)
	_, err = c.Append(ctx, recordOf(cmd, schemas.TypeProcessRejected, "second", schemas.CodeUnavailable), seq)
	testkit.Must(t, err)
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "a second")

	// A rejection for good answers.
	final := command("t", "final")
	_, err = c.Append(ctx, recordOf(final, schemas.TypeProcessRejected, "final", schemas.CodeInvalidArgument), 0)
	testkit.Must(t, err)
	call, err = c.Send(ctx, schemas.DefaultTenant, final)
	testkit.Must(t, err)
	defer call.Close()
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "final")
}
