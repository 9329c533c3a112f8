package main

import (
	"fmt"
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

// loop is a command that counts until it is killed, to its output and to a file in its workspace.
type loop struct {
	*cli
	client *spawned
	id     string
	last   int // the last number that the client has printed
}

const (
	loopKey    = "loop"
	loopScript = "i=0; while :; do i=$((i+1)); echo $i; echo $i >beat.tmp; mv beat.tmp beat; sleep 0.05; done"
)

// startLoop runs a loop in thread t1, and reads its first numbers.
func (c *cli) startLoop(flags ...string) *loop {
	c.t.Helper()
	args := append(append([]string{"exec", "--thread", "t1", "-n", "--key", loopKey}, flags...), "--", "sh", "-c", loopScript)
	l := &loop{cli: c, client: c.spawn(args...), id: schemas.ProcessID(schemas.DefaultTenant, "t1", loopKey)}
	l.wantNumbers(5)
	return l
}

// wantNumbers reads the next numbers of the client.
func (l *loop) wantNumbers(n int) {
	l.t.Helper()
	for range n {
		l.last++
		if got := l.client.line(); got != strconv.Itoa(l.last) {
			l.t.Fatalf("line = %q, want %d: output is missing or repeated", got, l.last)
		}
	}
}

// beat is the number in the loop's file.
func (l *loop) beat() int {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.data, "workspaces", schemas.DefaultTenant, "t1", "beat"))
	testkit.Must(l.t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	testkit.Must(l.t, err)
	return n
}

// wantRunning waits until the loop has counted on.
func (l *loop) wantRunning(after string) {
	l.t.Helper()
	from := l.beat()
	for deadline := time.Now().Add(testkit.Timeout); l.beat() < from+2; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.t.Fatalf("the loop has ended after `sluice %s`", after)
		}
	}
}

// catchUp reads the client's numbers up to what the loop has counted now.
func (l *loop) catchUp() {
	l.t.Helper()
	l.wantNumbers(l.beat() - l.last)
}

// end kills the loop, and checks that its log has every number once.
func (l *loop) end() {
	l.t.Helper()
	l.run("process", "kill", "--grace", "0s", l.id).check(l.t).exits(0)
	logs := l.run("logs", "-f", l.id)
	logs.check(l.t).exits(0).reportsNothing()
	lines := strings.Fields(logs.stdout)
	for i, line := range lines {
		if line != strconv.Itoa(i+1) {
			l.t.Fatalf("line %d of the log = %q, want %d", i+1, line, i+1)
		}
	}
	if len(lines) < l.last {
		l.t.Errorf("the log has %d numbers, want at least %d", len(lines), l.last)
	}
}

// Ten minutes 1: after a crash of `sluice up`, no command ends what survived, and the next `sluice up` goes on with it.
func TestCommandsEndNothingThatTheyDidNotStart(t *testing.T) {
	for _, provider := range []string{schemas.ProviderLocal, schemas.ProviderJail} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			if provider == schemas.ProviderJail {
				jailFlags(t, c)
			}
			start := []string{"up", "--listen", freeAddress(t), "--provider", provider, "--log-bytes", "100000000"}
			up := c.spawn(start...)
			upURL(t, up.stdout)
			l := c.startLoop()
			up.kill()
			here := []string{"--provider", provider}
			for _, args := range [][]string{
				{"ps"}, {"process", "list", "--all"}, {"logs", l.id}, {"events"}, {"messages", "--thread", "t1"}, {"session", "list"},
				{"session", "get", "--thread", "t1"}, {"sandbox", "list"}, {"template", "list"}, {"status"}, {"limits"}, {"doctor"}, {"reload"},
				append(append([]string{"exec", "--thread", "t2"}, here...), "--", "true"),
				append(append([]string{"exec", "--thread", "t1"}, here...), "--", "cat", "beat"),
				{"message", "--thread", "chat", "--template", "echo-agent", "hello"},
				{"session", "create", "--thread", "t3", "--provider", provider, "--start"}, {"session", "renew", "--thread", "t1"},
				{"session", "stop", "--thread", "t3"}, {"ps"},
			} {
				got := c.spawn(args...).outcome()
				if fails := slices.Contains([]string{"status", "limits", "reload"}, args[0]); fails != (got.code != 0) && args[0] != "doctor" {
					t.Errorf("sluice %s: exit code %d, output %s: %s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
				}
				if args[0] == "ps" && !strings.Contains(got.stdout, l.id) {
					t.Errorf("sluice ps = %q, want the loop", got.stdout)
				}
				l.wantRunning(strings.Join(args, " "))
			}
			up = c.spawn(start...)
			upURL(t, up.stdout)
			l.catchUp()
			l.end()
			up.signal(syscall.SIGTERM)
			up.wantExit(0)
		})
	}
}

// Ten minutes 1: a command that reads gives the data folder up, to an exec and to a `sluice up`, and goes on reading.
func TestReadersGiveTheDataFolderUp(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	start := []string{"up", "--listen", freeAddress(t), "--provider", "local"}
	up := c.spawn(start...)
	upURL(t, up.stdout)
	l := c.startLoop()
	l.client.kill()
	up.kill()
	l.client, l.last = c.spawn("logs", "-f", l.id), 0
	l.wantNumbers(5)
	second := c.spawn("events", "-f", "--json")
	second.awaitLine(string(schemas.TypeProcessStarted))
	c.run("exec", "--provider", "local", "--thread", "t2", "--", "echo", "on").check(t).exits(0).prints("on\n")
	up = c.spawn(start...)
	upURL(t, up.stdout)
	l.catchUp()
	l.wantNumbers(20)
	c.run("exec", "--provider", "local", "--thread", "t3", "--", "echo", "on").check(t).exits(0).prints("on\n")
	second.awaitLine(`"thread":"t3"`)
	l.end()
	l.client.wantExit(0)
	second.signal(syscall.SIGINT)
	second.wantExit(0)
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
}

// Ten minutes 1: without a server, a kill or a stop is carried out, and recorded.
func TestSurvivorsEndOnRequest(t *testing.T) {
	for _, v := range []struct {
		name   string
		args   func(l *loop) []string
		reason string
	}{
		{"kill", func(l *loop) []string { return []string{"process", "kill", l.id} }, "killed"},
		{"stop", func(*loop) []string { return []string{"session", "stop", "--thread", "t1"} }, "killed"},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			c := newCLI(t)
			up := c.spawn("up", "--listen", freeAddress(t), "--provider", "local")
			upURL(t, up.stdout)
			l := c.startLoop()
			l.client.kill()
			up.kill()
			c.run(v.args(l)...).check(t).exits(0)
			c.run("ps").check(t).exits(0).prints("")
			c.run("process", "list", "--all").check(t).printsMatch(fmt.Sprintf(`(?m)^%s +t1 +%s`, l.id, v.reason))
		})
	}
}

// Ten minutes 1: a command that knows neither the templates nor the worker id of a crashed `sluice up` leaves what it ran.
func TestSurvivorsOfAnotherConfigurationStay(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	folder := filepath.Join(c.data, "templates")
	testkit.Must(t, os.Mkdir(folder, 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "mine.yaml"), []byte("name: mine\n"), 0o600))
	start := []string{"up", "--listen", freeAddress(t), "--provider", "local", "--templates", folder}
	c.env["WORKER_ID"] = "w9"
	up := c.spawn(start...)
	upURL(t, up.stdout)
	l := c.startLoop("--template", "mine")
	up.kill()
	delete(c.env, "WORKER_ID")
	c.run("exec", "--provider", "local", "--thread", "t2", "--", "true").check(t).exits(0)
	l.wantRunning("exec")
	c.run("exec", "--provider", "local", "--thread", "t1", "--", "true").wantError(t, schemas.CodeNotFound, "mine")
	l.wantRunning("exec")
	c.env["WORKER_ID"] = "w9"
	up = c.spawn(start...)
	upURL(t, up.stdout)
	l.catchUp()
	l.end()
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
}
