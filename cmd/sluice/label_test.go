package main

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 12: labels and the trace context of the caller's environment go with a command, and select events.
func TestLabelsAndTrace(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c := newUp(t)
	c.env = map[string]string{"TRACEPARENT": parent}
	c.exec("--label", "user=ann", "-l", "step=one", "--", "sh", "-c", `echo "$TRACEPARENT"`).check(t).exits(0).prints(parent + "\n")
	c.env = map[string]string{"TRACEPARENT": "nonsense"}
	c.exec("--label", "user=bob", "--", "sh", "-c", `echo "<$TRACEPARENT>"`).check(t).exits(0).prints("<>\n")
	exited := 0
	for line := range strings.Lines(c.run("events", "--json", "--label", "user=ann", "--label", "step=one").stdout) {
		ev := decode[schemas.Event](t, line)
		testkit.Equal(t, "labels of "+string(ev.Type), ev.Labels, map[string]string{"user": "ann", "step": "one"})
		testkit.Equal(t, "trace of "+string(ev.Type), ev.TraceParent, parent)
		if ev.Type == schemas.TypeProcessExited {
			exited++
		}
	}
	testkit.Equal(t, "processes with the labels", exited, 1)
	c.exec("--label", "a b=c", "--", "true").wantError(t, schemas.CodeInvalidArgument, "labels")
	c.exec("--label", "ann", "--", "true").wantError(t, schemas.CodeInvalidArgument, "--label", "NAME=VALUE")
	c.run("events", "--label", "=ann").wantError(t, schemas.CodeInvalidArgument, "--label", "NAME=VALUE")
}
