package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// agentUp is a `sluice up` that supervises an agent: a server of ours, which misbehaves on request.
type agentUp struct {
	*cli
	port string
	up   *spawned
}

func newAgentUp(t *testing.T) *agentUp {
	t.Helper()
	t.Parallel()
	c := newCLI(t)
	_, port, err := net.SplitHostPort(freeAddress(t))
	testkit.Must(t, err)
	c.env["SANDBOX_AGENT_BIN"], c.env["SANDBOX_AGENT_PORT"] = testkit.Build(t, "internal/testkit/testserver"), port
	a := &agentUp{cli: c, port: port}
	a.workIn(t.TempDir())
	return a
}

func (a *agentUp) workIn(folder string) { a.env["SANDBOX_WORKSPACE"] = folder }

func (a *agentUp) url() string { return "http://127.0.0.1:" + a.port }

// start starts `sluice up`, and returns the agent's process id once it is healthy.
func (a *agentUp) start(flags ...string) int {
	a.t.Helper()
	a.up = a.spawn(append([]string{"up", "--listen", "127.0.0.1:0"}, flags...)...)
	upURL(a.t, a.up.stdout)
	a.up.wantLine(fmt.Sprintf("agent is up: %s, service agent of thread sandbox-agent, in %s", a.url(), a.env["SANDBOX_WORKSPACE"]))
	return a.only()
}

// only returns the process id of the one agent that runs.
func (a *agentUp) only() int {
	a.t.Helper()
	pids := withArgument(a.t, a.port)
	if len(pids) != 1 {
		a.t.Fatalf("agents %v run, want one", pids)
	}
	return pids[0]
}

func (a *agentUp) info() serviceInfo {
	a.t.Helper()
	return decode[serviceInfo](a.t, a.run("service", "status", "--json", agentThread, agentService).stdout)
}

func (a *agentUp) post(mode string) string {
	a.t.Helper()
	resp, err := http.Post(a.url()+"/"+mode, "", nil)
	testkit.Must(a.t, err)
	defer resp.Body.Close()
	text := make([]byte, 100)
	n, _ := resp.Body.Read(text) // it has all of a short answer
	return strings.TrimSpace(string(text[:n]))
}

// awaitRestart waits until the service runs again in another process.
func (a *agentUp) awaitRestart(before string) serviceInfo {
	a.t.Helper()
	for late := time.After(testkit.Timeout); ; {
		if s := a.info(); s.State == schemas.ServiceRunning && s.Process() != before {
			return s
		}
		select {
		case <-late:
			a.t.Fatalf("the agent is not up again: %+v", a.info())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func procFile(t *testing.T, pid int, file string) string {
	t.Helper()
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	testkit.Must(t, err)
	return strings.TrimSuffix(string(body), "\x00")
}

// Processes 4: SANDBOX_AGENT_BIN and SANDBOX_WORKSPACE have `sluice up` start an agent, directly, in that folder and with none of its own
// secrets; show its state; start it again when it dies; and end its whole tree when it ends itself.
func TestUpSupervisesAnAgent(t *testing.T) {
	a := newAgentUp(t)
	a.env["AWS_SECRET_ACCESS_KEY"], a.env["SLUICE_SECRET_KEY"] = "hidden", "hidden"
	pid := a.start(jailFlags(t, a.cli)...)
	dir := a.env["SANDBOX_WORKSPACE"]
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	testkit.Must(t, err)
	testkit.Equal(t, "working directory", cwd, dir)
	testkit.Equal(t, "command line", strings.Split(procFile(t, pid, "cmdline"), "\x00"),
		[]string{a.env["SANDBOX_AGENT_BIN"], "server", "--host", "127.0.0.1", "--port", a.port, "--no-token"})
	var names []string
	for _, v := range strings.Split(procFile(t, pid, "environ"), "\x00") {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	testkit.Equal(t, "environment", names, []string{"HOME", "LANG", "PATH", "SLUICE_PROCESS", "SLUICE_THREAD", "TERM"})

	s := a.info()
	testkit.Equal(t, "info", []any{s.State, s.BaseURL, s.Healthy, s.RestartAttempts, s.LogLines}, []any{schemas.ServiceRunning, a.url(), true, 0, 1000})
	a.run("service", "list").check(t).printsPart(agentThread, agentService, "running", a.url())
	a.run("service", "logs", agentThread, agentService).check(t).printsPart("Z | listening on 127.0.0.1:" + a.port)
	for _, logged := range []string{`"command":"` + a.env["SANDBOX_AGENT_BIN"], `"dir":"` + a.data, `"healthy_ms":`} {
		a.up.awaitStderr(logged)
	}
	// The default of other commands still isolates.
	a.run("exec", "--thread", "t1", "--", "pwd").check(t).prints("/workspace\n")

	testkit.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	again := a.awaitRestart(s.Process())
	testkit.Equal(t, "restart attempts", again.RestartAttempts, 1)
	pid = a.only()
	child, err := strconv.Atoi(a.post("leak"))
	testkit.Must(t, err)
	a.up.signal(syscall.SIGINT)
	a.up.wantExit(0)
	waitGone(t, []int{pid, child}) // the child ignores SIGTERM
	testkit.Equal(t, "state", a.info().State, schemas.ServiceStopped)
}

// Processes 4: the agent outlives a `sluice up` that is killed, and the next one goes on with it, or replaces it when it was asked for
// another one.
func TestAgentOutlivesItsUp(t *testing.T) {
	a := newAgentUp(t)
	pid := a.start("--provider", "local")
	a.up.kill()
	testkit.Equal(t, "process of the next up", a.start("--provider", "local"), pid)
	a.up.kill()
	a.workIn(t.TempDir())
	other := a.start("--provider", "local")
	waitGone(t, []int{pid})
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", other))
	testkit.Must(t, err)
	testkit.Equal(t, "working directory", cwd, a.env["SANDBOX_WORKSPACE"])
	a.up.kill()
	a.env["SANDBOX_AGENT_HEALTH_PATH"] = "/health?more"
	last := a.start("--provider", "local")
	if last == other {
		t.Error("the process is the same with another health path")
	}
	waitGone(t, []int{other})

	// The folder is the operator's.
	note := filepath.Join(a.env["SANDBOX_WORKSPACE"], "note")
	testkit.Must(t, os.WriteFile(note, nil, 0o600))
	a.run("file", "ls", agentThread+":").check(t).exits(0).printsPart("note")
	a.run("session", "delete", agentThread).check(t).exits(0)
	waitGone(t, []int{last})
	_, err = os.Stat(note)
	testkit.Must(t, err)
	a.up.signal(syscall.SIGTERM)
	a.up.wantExit(0)
}

// Processes 4: an operator's template adds environment and secrets, which are on no record.
func TestAgentHasTheEnvironmentOfItsTemplate(t *testing.T) {
	a := newAgentUp(t)
	folder, _ := a.templates("name: sandbox-agent\nprovider: local\nenv: {MODE: quiet}\nsecrets:\n  KEY: {env: SLUICE_SECRET_KEY}\n")
	a.env["SLUICE_SECRET_KEY"] = unique()
	pid := a.start("--provider", "local", "--templates", folder)
	environ := strings.Split(procFile(t, pid, "environ"), "\x00")
	for _, want := range []string{"MODE=quiet", "KEY=" + a.env["SLUICE_SECRET_KEY"]} {
		testkit.Equal(t, want+" is there", slices.Contains(environ, want), true)
	}
	for _, args := range [][]string{{"service", "get", "--json", agentThread, agentService}, {"events", "--json", "--thread", agentThread}, {"template", "show", agentThread}} {
		a.run(args...).check(t).exits(0).omits(a.env["SLUICE_SECRET_KEY"])
	}
	a.up.signal(syscall.SIGTERM)
	a.up.wantExit(0)
}

// Processes 4: `sluice up` fails at once without its agent, and leaves nothing behind.
func TestUpWithoutItsAgent(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		bin, folder, port, health string
		code                      schemas.Code
		text                      string
	}{
		{bin: "/does/not/exist", code: schemas.CodeNotFound, text: "/does/not/exist"},
		{bin: "no-such-agent", code: schemas.CodeNotFound, text: `"no-such-agent"`},
		{folder: dir, code: schemas.CodeNotFound, text: `"sandbox-agent"`},
		{bin: file, code: schemas.CodeNotFound, text: "permission denied"},
		{bin: "/bin/sh", folder: "/does/not/exist", code: schemas.CodeInvalidArgument, text: "SANDBOX_WORKSPACE"},
		{bin: "/bin/sh", folder: file, code: schemas.CodeInvalidArgument, text: "not a folder"},
		{bin: "/bin/sh", port: "70000", code: schemas.CodeInvalidArgument, text: "SANDBOX_AGENT_PORT"},
		{bin: "/bin/sh", port: "x", code: schemas.CodeInvalidArgument, text: "SANDBOX_AGENT_PORT"},
		{bin: "/bin/sh", health: "health", code: schemas.CodeInvalidArgument, text: "SANDBOX_AGENT_HEALTH_PATH"},
	} {
		c.env = map[string]string{
			"SANDBOX_AGENT_BIN": tt.bin, "SANDBOX_WORKSPACE": tt.folder, "SANDBOX_AGENT_PORT": tt.port, "SANDBOX_AGENT_HEALTH_PATH": tt.health,
		}
		c.run("up", "--listen", "127.0.0.1:0").wantError(t, tt.code, tt.text)
	}
	left, err := os.ReadDir(c.data)
	if err != nil || len(left) > 0 {
		t.Errorf("the data folder has %v (error: %v), want nothing", left, err)
	}
}

// Processes 4: an agent that ends at each start is started three times, and then `sluice up` fails with what to do; Ctrl+C while an agent
// is never healthy ends both.
func TestUpWithAnAgentThatDoesNotStart(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	word := unique()
	program := func(script string) {
		file := filepath.Join(t.TempDir(), "agent")
		testkit.WriteProgram(t, file, []byte("#!/bin/sh\n"+script+"\n"))
		c.env["SANDBOX_AGENT_BIN"] = file
	}
	program("echo no key; exit 3")
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeUnavailable, "exit code 3", "sluice service logs sandbox-agent agent")
	c.run("service", "logs", agentThread, agentService).check(t).printsMatch(`(?s)no key.*no key.*no key`)

	program("exec sh -c 'while :; do sleep 1; done' " + word)
	up := c.spawn("up", "--provider", "local", "--listen", "127.0.0.1:0")
	upURL(t, up.stdout)
	up.awaitStderr("service_launched")
	up.signal(syscall.SIGINT)
	up.wantEnd(0, "")
	waitGone(t, withArgument(t, word))

	taken := newCLI(t)
	taken.env = c.env
	testkit.Must(t, os.MkdirAll(filepath.Join(taken.data, "workspaces", schemas.DefaultTenant, agentThread), 0o700))
	taken.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeConflict, "sluice session delete sandbox-agent")
}
