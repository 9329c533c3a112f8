package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestProcessesInTheBackground(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("process", "start", "--thread", "t1", "--", "true").wantError(t, schemas.CodeUnavailable, "sluice up")
	up := c.spawn("up", "--listen", freeAddress(t), "--provider", "local")
	upURL(t, up.stdout)
	feed := func(text string, args ...string) outcome {
		t.Helper()
		name := filepath.Join(t.TempDir(), "in")
		testkit.Must(t, os.WriteFile(name, []byte(text), 0o600))
		in, err := os.Open(name)
		testkit.Must(t, err)
		defer in.Close()
		return c.runFrom(in, args...)
	}
	start := func(args ...string) string {
		t.Helper()
		got := c.run(append([]string{"process", "start", "--thread", "t1"}, args...)...)
		got.check(t).exits(0)
		return strings.TrimSpace(got.stdout)
	}
	shell := []string{"--id", "sh", "--stdin-open", "--", "bash", "-c", "while read -r line; do echo got $line; done; exit 5"}
	id := start(shell...)
	testkit.Equal(t, "id of the second start", start(shell...), id)
	testkit.Equal(t, "id", id, schemas.ProcessID("default", "t1", "sh"))
	c.run("process", "get", "--thread", "t1", "sh").check(t).exits(0).printsMatch(`(?m)^status +(starting|running)$`)
	c.run("process", "wait", "--thread", "t1", "--timeout", "50ms", "sh").check(t).exits(schemas.ExitTimedOut)
	feed("one\ntwo\n", "process", "stdin", "--keep-open", id).check(t).exits(0)
	feed("three\n", "process", "stdin", "--thread", "t1", "sh").check(t).exits(0)
	c.run("process", "wait", id).check(t).exits(5).printsMatch(`(?m)^` + id + ` +failed +5$`)
	c.run("process", "follow", id).check(t).exits(0).prints("got one\ngot two\ngot three\n")
	c.run("process", "logs", "--tail", "1", id).check(t).exits(0).prints("got three\n")
	info := decode[schemas.ProcessInfo](t, c.run("process", "get", id, "--json").stdout)
	testkit.Equal(t, "status and reason", []string{string(info.Status), string(info.Reason)}, []string{"failed", "exited"})
	c.run(append([]string{"process", "start", "--thread", "t1"}, shell...)...).check(t).exits(0).reports(id + " has ended: `sluice logs")
	feed("late\n", "process", "stdin", id).wantError(t, schemas.CodeNotFound, id)

	first, second := start("--", "sleep", "300"), start("--", "sleep", "300")
	for _, p := range c.awaitMemory(2) {
		testkit.Equal(t, "count of processes of "+p.Process, p.Usage.Processes, 1)
	}
	c.run("process", "list", "--stats").check(t).exits(0).printsMatch(`(?m)^` + first + ` +t1 +running +[0-9a-z.]+ +[0-9.]+ [KM]iB +1 +sleep 300$`)
	c.run("top", "--count", "1", "--interval", "100ms", "t1").check(t).exits(0).printsMatch(`(?m)^` + second + ` +[0-9.]+% +[0-9.]+ [KM]iB +1 `)
	c.run("top", "--interval", "1ms", "t1").wantError(t, schemas.CodeInvalidArgument, "--interval")
	c.run("process", "kill", "--all").wantError(t, schemas.CodeInvalidArgument, "--thread")
	c.run("process", "kill", "--all", "--thread", "t1").check(t).exits(0).prints("2\n")
	c.run("process", "wait", first, second).check(t).exits(1).printsPart("killed")
	c.run("process", "wait", "p0").wantError(t, schemas.CodeNotFound, "p0")
	c.run("ps").check(t).exits(0).prints("")

	other := strings.TrimSpace(c.run("process", "start", "--thread", "t2", "--", "sleep", "300").stdout)
	c.run("session", "stop", "--grace", "0s", "t2").check(t).exits(0)
	c.run("process", "wait", other).check(t).exits(schemas.ExitSignalBase + 9).printsPart("killed") // it ends with its sandbox

	start("--id", "source", "--", "echo", "piped")
	piped := start("--stdin-from", "source", "--", "cat")
	c.run("process", "wait", piped).check(t).exits(0)
	c.run("process", "logs", piped).check(t).exits(0).prints("piped\n")

	gone := start("--auto-cleanup", "--", "true")
	c.run("process", "wait", gone).check(t).exits(0)
	c.run("process", "clean").wantError(t, schemas.CodeInvalidArgument, "THREAD is missing")
	c.run("process", "clean", "t1").check(t).exits(0).prints("5\n")
	c.run("process", "clean", "--thread", "t1").check(t).exits(0)
	c.run("process", "list", "--all", "--thread", "t1", "--json").check(t).exits(0).prints("[]\n")
	c.run("process", "get", gone).check(t).exits(0).printsMatch(`(?m)^status +completed$`)
}

// awaitMemory waits until n processes run and use memory, and returns them: the kernel counts small memory late.
func (c *cli) awaitMemory(n int) []schemas.ProcessInfo {
	c.t.Helper()
	var list []schemas.ProcessInfo
	for ctx := testkit.Context(c.t); ctx.Err() == nil; {
		list = decode[[]schemas.ProcessInfo](c.t, c.run("process", "list", "--stats", "--json").stdout)
		if len(list) == n && !slices.ContainsFunc(list, func(p schemas.ProcessInfo) bool { return p.Usage == nil || p.Usage.MemoryBytes <= 0 }) {
			return list
		}
	}
	c.t.Fatalf("processes with their usage = %+v, want %d that use memory", list, n)
	return nil
}
