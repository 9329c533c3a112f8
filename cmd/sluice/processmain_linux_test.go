package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMainProcessEndsItsSession(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	up := c.spawn("up", "--listen", freeAddress(t), "--provider", "local")
	upURL(t, up.stdout)
	got := c.run("process", "start", "--thread", "t1", "--main", "--", "sh", "-c", "exit 3")
	got.check(t).exits(0)
	c.run("process", "wait", strings.TrimSpace(got.stdout)).check(t).exits(3)
	following := c.spawn("events", "-f", "--thread", "t1", "--json")
	var ev schemas.Event
	for ev.Type != schemas.TypeSessionTerminated {
		testkit.Must(t, json.Unmarshal([]byte(following.line()), &ev))
	}
	var last schemas.Session
	testkit.Must(t, ev.Decode(&last))
	code := 3
	testkit.Equal(t, "state of the session", last.State, schemas.SandboxCompleted)
	testkit.Equal(t, "exit code of the session", last.ExitCode, &code)
	c.run("session", "get", "t1").wantError(t, schemas.CodeNotFound, "t1")
}
