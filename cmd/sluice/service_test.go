package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Processes 4: the commands about services, with a real server behind a unix socket.
func TestServiceCommands(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	server, socket := testkit.Build(t, "internal/testkit/testserver"), filepath.Join(testkit.ShortDir(t), "s")
	start := []string{"service", "start", "--provider", "local", "--health-socket", socket, "--health-path", "/health", "--env", "SECRET=hidden", "t1", "web", "--", server, socket}
	c.run(start...).wantError(t, schemas.CodeUnavailable, "sluice up")
	c.up()
	c.run(start...).check(t).exits(0)

	got := c.run("service", "get", "--json", "t1", "web")
	s := decode[*schemas.Service](t, got.stdout)
	testkit.Equal(t, "state", s.State, schemas.ServiceRunning)
	if strings.Contains(got.stdout, "hidden") {
		t.Errorf("its environment is printed: %s", got.stdout)
	}
	testkit.Equal(t, "number of services", len(decode[[]schemas.Service](t, c.run("service", "list", "--json").stdout)), 1)
	testkit.Equal(t, "number of services of another thread", len(decode[[]schemas.Service](t, c.run("service", "list", "--thread", "t2", "--json").stdout)), 0)
	if text := c.run("service", "list").stdout; !strings.Contains(text, "running") || !strings.Contains(text, s.Process()) {
		t.Errorf("the list is %q", text)
	}
	line := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \| listening on `)
	if text := c.run("service", "logs", "t1", "web").stdout; !line.MatchString(text) {
		t.Errorf("the log is %q", text)
	}
	c.run("service", "logs", "--tail", "1001", "t1", "web").wantError(t, schemas.CodeInvalidArgument, "1000")
	c.run("service", "stop", "t1", "web").check(t).exits(0)
	testkit.Equal(t, "state", decode[*schemas.Service](t, c.run("service", "get", "--json", "t1", "web").stdout).State, schemas.ServiceStopped)
	c.run("service", "get", "t1", "other").wantError(t, schemas.CodeNotFound, "other")
	c.run("service", "start", "t1", "web").wantError(t, schemas.CodeInvalidArgument, "COMMAND")
	c.run("service", "start", "--health-path", "/x", "t1", "web", "--", "true").wantError(t, schemas.CodeInvalidArgument, "port")
}
