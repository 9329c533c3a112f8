package main

import (
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// An error names what it is about, and the way out.
func TestErrorsNameTheWayOut(t *testing.T) {
	c := newUp(t)
	c.run("process", "start", "--thread", "t1", "--id", "slow", "--", "sh", "-c", "echo on; exec sleep 300").check(t).exits(0)
	c.run("file", "mkdir", "t1:dir/sub").check(t).exits(0)
	for _, k := range []struct {
		code  schemas.Code
		parts []string
		args  []string
	}{
		{schemas.CodeNotFound, []string{"slow", "--thread"}, []string{"process", "get", "slow"}},
		{schemas.CodeNotFound, []string{"slow", "--thread"}, []string{"process", "cancel", "slow"}},
		{schemas.CodeNotFound, []string{"slow", "--thread"}, []string{"logs", "slow"}},
		{schemas.CodeNotFound, []string{`thread t1 has no process "slwo"`, "process list --all --thread t1"}, []string{"process", "kill", "--thread", "t1", "slwo"}},
		{schemas.CodeNotFound, []string{`thread t1 has no process "slwo"`}, []string{"process", "start", "--thread", "t1", "--stdin-from", "slwo", "--", "cat"}},
		{schemas.CodeInvalidArgument, []string{"not a terminal", "sluice logs -f"}, []string{"attach", "slow"}},
		{schemas.CodeInvalidArgument, []string{"--stdin-open"}, []string{"process", "stdin", "--thread", "t1", "slow"}},
		{schemas.CodeNotFound, []string{"nope", "sluice file ls t1:"}, []string{"file", "cat", "t1:nope"}},
		{schemas.CodeNotFound, []string{"nope", "sluice file ls t1:"}, []string{"cp", "t1:nope", c.data}},
		{schemas.CodeNotFound, []string{"nope: "}, []string{"file", "ls", "t1:nope"}},
		{schemas.CodeConflict, []string{"dir", "--recursive"}, []string{"file", "rm", "t1:dir"}},
		{schemas.CodeInvalidArgument, []string{"another workspace", "sluice cp"}, []string{"file", "mv", "t1:dir", "t2:dir"}},
		{schemas.CodeInvalidArgument, []string{"THREAD NAME -- COMMAND", "sluice service start --help"}, []string{"service", "start", "t1", "web"}},
		{schemas.CodeInvalidArgument, []string{"--health-path", "--health-port"}, []string{"service", "start", "--health-path", "/", "t1", "web", "--", "true"}},
		{schemas.CodeInvalidArgument, []string{"moon", "docker"}, []string{"service", "start", "--provider", "moon", "t1", "web", "--", "true"}},
		{schemas.CodeInvalidArgument, []string{"one health check"}, []string{"service", "start", "--health-port", "1", "--health-command", "true", "t1", "web", "--", "true"}},
		{schemas.CodeInvalidArgument, []string{"failed at start 1", "sluice service logs t1 web"}, []string{"service", "start", "t1", "web", "--", "no-such-program"}},
		{schemas.CodeNotFound, []string{"nope", "sluice service list"}, []string{"service", "get", "t1", "nope"}},
		{schemas.CodeNotFound, []string{"service nope of thread t1 does not exist", "sluice service list"}, []string{"service", "stop", "t1", "nope"}},
		{schemas.CodeInvalidArgument, []string{"THREAD and ports", "--help"}, []string{"port-forward", "t1"}},
		{schemas.CodeInvalidArgument, []string{"t/1"}, []string{"port-forward", "t/1", "8000"}},
		{schemas.CodeInvalidArgument, []string{"one THREAD", "--help"}, []string{"top"}},
		{schemas.CodeInvalidArgument, []string{"--count"}, []string{"top", "--count", "-1", "t1"}},
	} {
		c.run(k.args...).wantError(t, k.code, k.parts...)
	}
	c.run("file", "mv", "t1:dir/sub", "t1:dir/other").check(t).exits(0)
	c.run("file", "stat", "t1:dir/other").check(t).exits(0)
	// Each command about a process takes the name that --id gave it.
	c.run("logs", "--thread", "t1", "slow").check(t).exits(0).prints("on\n")
	c.run("process", "cancel", "--thread", "t1", "slow").check(t).exits(0)
	c.run("process", "wait", "--thread", "t1", "slow").check(t).exits(137).printsPart("killed")
}
