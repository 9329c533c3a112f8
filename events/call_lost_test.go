package events

import (
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Promises 19: a stored loss does not answer a command that may run again, while its run waits in the queue.
func TestLossAnswersNoCommandThatRunsAgain(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	cmd := command("t", "k")
	cmd.Exec.Retry = schemas.RetrySafe
	seq, err := c.Append(ctx, recordOf(cmd, schemas.TypeProcessAccepted, "first", ""), 0)
	testkit.Must(t, err)
	seq, err = c.Append(ctx, recordOf(cmd, schemas.TypeProcessLost, "lost", schemas.CodeLost), seq)
	testkit.Must(t, err)
	call, err := c.Send(ctx, schemas.DefaultTenant, cmd)
	testkit.Must(t, err)
	defer call.Close()
	ev, err := call.startWatch(ctx)
	if ev != nil || err != nil {
		t.Fatalf("answer = %+v, error %v; want none", ev, err)
	}
	seq, err = c.Append(ctx, recordOf(cmd, schemas.TypeProcessAccepted, "again", ""), seq)
	testkit.Must(t, err)
	_, err = c.Append(ctx, recordOf(cmd, schemas.TypeProcessExited, "end", ""), seq)
	testkit.Must(t, err)
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "again end")
}
