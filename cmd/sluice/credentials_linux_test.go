package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 10: the credentials in a URL of NATS are in no output of any command.
func TestCredentialsInURLsAreNotPrinted(t *testing.T) {
	t.Parallel()
	const token = "tok/en-hunter2"
	closed := freeAddress(t) // it refuses connections
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(t.TempDir(), "nats"), Listen: "127.0.0.1:0", Token: fleetToken, StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	commands := [][]string{
		{"--help"}, {"exec", "--help"}, {"worker", "--help"}, {"exec", "--", "true"}, {"exec", "--json", "--", "true"}, {"ps"}, {"logs", "p0000000000000000000000000"}, {"events", "--json"},
		{"status"}, {"status", "--json"}, {"doctor"}, {"doctor", "--json"}, {"template", "list"}, {"session", "list"}, {"message", "hi"}, {"__complete", "--nats", ""},
	}
	wantNoToken := func(command, printed string) {
		t.Helper()
		for _, part := range []string{"tok/", "hunter2"} {
			if strings.Contains(printed, part) {
				t.Errorf("sluice %s prints a part of the token: %s", command, printed)
			}
		}
	}
	for _, url := range []string{
		"nats://" + token + "@" + closed, "nats://user:" + token + "@" + strings.TrimPrefix(server.URL(), "nats://"), "nats://" + token + "@[::bad", "tls://" + token + "@h:port",
		token + "@127.0.0.1:1",
	} {
		for _, args := range commands {
			c := newCLI(t)
			c.env["SLUICE_NATS_URL"] = url
			got := c.run(args...)
			wantNoToken(strings.Join(args, " "), got.stdout+got.stderr)
		}
	}
	c := newCLI(t)
	c.env["SLUICE_NATS_URL"] = "nats://" + token + "@" + closed
	w := c.spawn("worker", "--provider", "local", "--log-level", "debug")
	w.awaitStderr("waiting for NATS")
	w.signal(syscall.SIGTERM)
	w.wantExit(0)
	wantNoToken("worker", w.stderr.String())
	c.run("--nats", "nats://"+token+"@127.0.0.1:1", "ps").check(t).reports("warning: every user of this machine can read the credentials in --nats")
	wantNoToken("sync", c.run("sync", "push", t.TempDir(), "https://user:hunter2@h/p").stderr)
}

// Ten minutes 10: the credentials of a worker are in no log, and neither in the arguments nor in the environment of what it starts.
func TestCredentialsAreNotInherited(t *testing.T) {
	t.Parallel()
	const token = "hunter2-hunter2"
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(t.TempDir(), "nats"), Listen: "127.0.0.1:0", Token: token, StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	c := newCLI(t)
	c.env["SLUICE_NATS_URL"] = "nats://" + token + "@" + strings.TrimPrefix(server.URL(), "nats://")
	c.env["SLUICE_NATS_TOKEN"] = token
	w := c.spawn("worker", "--provider", "local", "--log-level", "debug", "--metrics", "0")
	if line := w.line(); strings.Contains(line, token) || !strings.Contains(line, server.URL()) {
		t.Errorf("line = %q, want the URL without the token", line)
	}
	guest := newCLI(t)
	guest.env["SLUICE_NATS_URL"] = c.env["SLUICE_NATS_URL"]
	l := &loop{cli: c}
	l.client = guest.spawn("exec", "--provider", "local", "--thread", "t1", "-n", "--key", loopKey, "--", "sh", "-c", loopScript)
	l.wantNumbers(3)
	guest.run("status", "--json").check(t).exits(0).printsPart(server.URL()).omits(token)
	children := descendants(t, w.cmd.Process.Pid)
	if len(children) < 2 {
		t.Fatalf("the worker has %d descendants, want a supervisor and a process", len(children))
	}
	for _, pid := range children {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err == nil && bytes.Contains(text, []byte(token)) { // otherwise it has ended
				t.Errorf("%s of process %d = %q, want no token", file, pid, text)
			}
		}
	}
	l.client.signal(syscall.SIGINT)
	l.client.wantExit(130)
	w.signal(syscall.SIGTERM)
	w.wantExit(0)
	if strings.Contains(w.stderr.String(), token) {
		t.Errorf("log = %s, want no token", w.stderr)
	}
}

// descendants are the processes below one, and those of its sandboxes.
func descendants(t *testing.T, root int) (pids []int) {
	t.Helper()
	for _, child := range childrenOf(t, root) {
		pids = append(append(pids, child), descendants(t, child)...)
	}
	return pids
}

func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	testkit.Must(t, err)
	for _, f := range files {
		text, _ := os.ReadFile(f) // a thread that has ended has none
		for field := range strings.FieldsSeq(string(text)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// Ten minutes 10: credentials that no connection would use are refused, with and without a `sluice up`.
func TestUnusedCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for range 2 {
		for _, args := range [][]string{{"exec", "--", "true"}, {"ps"}, {"status"}, {"session", "list"}} {
			c.run(append([]string{"--creds", "my.creds"}, args...)...).wantError(t, schemas.CodeInvalidArgument, "--creds", "--nats URL")
		}
		c.run("--creds", "my.creds", "up").wantError(t, schemas.CodeInvalidArgument, "sluice worker --nats URL")
		c.run("--nats", "nats://127.0.0.1:1", "up").wantError(t, schemas.CodeInvalidArgument, "sluice worker --nats URL")
		if _, err := os.Stat(filepath.Join(c.data, "server.json")); err == nil {
			break
		}
		c.up()
	}
	c.good()
}

// Ten minutes 10: a server that other machines reach needs TLS, or the user's word.
func TestListeningBeyondLoopbackNeedsTLS(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	for _, address := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:4222"} {
		c.run("up", "--provider", "local", "--listen", address).wantError(t, schemas.CodeInvalidArgument, "--listen "+address, "--tls-cert FILE and --tls-key FILE", "--insecure")
	}
	c.run("up", "--provider", "local", "--tls-cert", "x").wantError(t, schemas.CodeInvalidArgument, "both")
	plain := c.spawn("up", "--provider", "local", "--listen", "0.0.0.0:0", "--insecure")
	plain.awaitLine("is up")
	c.good()
	plain.signal(syscall.SIGTERM)
	plain.wantExit(0)

	cert, key := filepath.Join(c.data, "server.pem"), filepath.Join(c.data, "server.key")
	out, err := exec.Command("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=localhost",
		"-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert).CombinedOutput()
	if err != nil {
		testkit.Missing(t, "openssl", string(out))
	}
	up := c.spawn("up", "--provider", "local", "--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key)
	_, port, _ := strings.Cut(strings.TrimPrefix(upURL(t, up.stdout), "tls://"), ":")
	c.good() // the user's own commands need no certificate
	c.run("status").check(t).exits(0).printsPart("tls://")
	token := (&dataFolder{path: c.data}).storedToken()
	guest := newCLI(t)
	guest.env["SLUICE_NATS_URL"], guest.env["SLUICE_NATS_TOKEN"] = "nats://127.0.0.1:"+port, token
	guest.run("exec", "--provider", "local", "--", "echo", "on").wantError(t, schemas.CodeUnauthenticated, "certificate", "--tls-ca")
	guest.env["SLUICE_NATS_CA"] = cert
	guest.run("exec", "--provider", "local", "--", "echo", "on").check(t).exits(0).prints("on\n")
	guest.run("status").check(t).exits(0).omits(token)
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
}

// Ten minutes 10: `kill -HUP $(pgrep -x sluice)` reloads templates, and ends nothing.
func TestHangupSignalEndsNoSluice(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	program, err := os.ReadFile(os.Args[0])
	testkit.Must(t, err)
	c.bin = filepath.Join(c.data, "sluice")
	testkit.WriteProgram(t, c.bin, program)
	folder, file := c.templates("name: first\n")
	flags := append([]string{"up", "--listen", freeAddress(t), "--templates", folder, "--log-format", "json"}, jailFlags(t, c)...)
	up := c.spawn(flags...)
	upURL(t, up.stdout)
	l := c.startLoop()
	logs := c.spawn("logs", "-f", l.id)
	logs.line()
	followed := c.spawn("events", "-f")
	followed.awaitLine("process.started")
	c.write(file, "name: second\n")
	hangUp := func(want ...*spawned) {
		t.Helper()
		// What `pgrep -x sluice` finds, of this test's processes.
		var sent []int
		for _, p := range append([]*spawned{up}, want...) {
			for _, pid := range append([]int{p.cmd.Process.Pid}, descendants(t, p.cmd.Process.Pid)...) {
				name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				if err == nil && strings.TrimSpace(string(name)) == "sluice" {
					testkit.Must(t, syscall.Kill(pid, syscall.SIGHUP))
					sent = append(sent, pid)
				}
			}
		}
		for _, p := range want {
			testkit.Equal(t, "it got the signal", slices.Contains(sent, p.cmd.Process.Pid), true)
		}
	}
	hangUp(l.client, logs, followed)
	up.awaitStderr("templates_reloaded")
	l.wantRunning("kill -HUP")
	l.catchUp()
	c.run("exec", "--thread", "t2", "--template", "second", "--", "echo", "on").check(t).exits(0).prints("on\n")
	followed.awaitLine("echo on")
	for range 20 {
		logs.line()
	}
	l.end()
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
	other := newCLI(t)
	other.bin = c.bin
	alone := other.startLoop() // with the worker in its own process
	hangUp(alone.client)
	alone.wantRunning("kill -HUP")
	alone.catchUp()
	alone.end()
}

// Ten minutes 10: `sluice reload` does what SIGHUP does, and reports the outcome.
func TestReload(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("reload").wantError(t, schemas.CodeUnavailable, c.data, "sluice up", "--data")
	folder, file := c.templates("name: first\n")
	up := c.spawn("up", "--listen", "127.0.0.1:0", "--provider", "local", "--templates", folder)
	upURL(t, up.stdout)
	c.write(file, "name: second\npolicy: {deny: [git]}\n")
	c.run("reload").check(t).exits(0).printsMatch(`^reloaded: \d+ templates\n$`)
	c.run("template", "show", "second").check(t).exits(0).printsPart("git")
	c.run("exec", "--provider", "local", "--template", "second", "--", "git", "status").wantError(t, schemas.CodePolicyDenied, "git")
	c.write(file, "name: third\nnettwork: host\n")
	c.run("reload").wantError(t, schemas.CodeInvalidArgument, file+":2", "nettwork")
	c.run("template", "show", "second").check(t).exits(0)
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
	c.run("reload").wantError(t, schemas.CodeUnavailable, "sluice up")
	// A worker on another server.
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(t.TempDir(), "nats"), Listen: "127.0.0.1:0", Token: fleetToken, StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	c.write(file, "name: first\n")
	c.env["SLUICE_NATS_TOKEN"] = fleetToken
	w := c.spawn("worker", "--nats", server.URL(), "--provider", "local", "--templates", folder)
	w.awaitLine("is up")
	c.write(file, "name: second\n")
	c.run("reload").check(t).exits(0).printsPart("reloaded: ")
	c.run("--nats", server.URL(), "template", "show", "second").check(t).exits(0)
	c.run("ps").wantError(t, schemas.CodeConflict, "sluice worker", "--nats")
	w.signal(syscall.SIGTERM)
	w.wantExit(0)
}
