package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func (c *cli) templates(body string) (folder, file string) {
	c.t.Helper()
	folder = c.t.TempDir()
	file = filepath.Join(folder, "mine.yaml")
	c.write(file, body)
	return folder, file
}

// write replaces a file atomically, as an editor does.
func (c *cli) write(file, body string) {
	c.t.Helper()
	testkit.Must(c.t, os.WriteFile(file+".new", []byte(body), 0o600))
	testkit.Must(c.t, os.Rename(file+".new", file))
}

func TestTemplateCheck(t *testing.T) {
	c := newCLI(t)
	folder, file := c.templates("name: mine\n---\nname: other\n")
	c.run("template", "check", file, "--", folder+"/.").check(t).exits(1).reports("template mine is already defined at " + file + ":1")
	c.run("template", "check", folder).check(t).exits(0).prints("mine: ok\nother: ok\n").reportsNothing()
	c.write(file, "name: mine\nhooks:\n  cold_start:\n    - builtin: clean-up\n      timeout: soon\nimg: x\n")
	want := file + `:5: hooks.cold_start[0].timeout: "soon": not a duration: write 30s, 5m or 1h30m` + "\n" + file + ":6: img: unknown field"
	c.run("template", "check", file).check(t).exits(1).reports(want)
	c.run("template", "check").wantError(t, schemas.CodeInvalidArgument, "FILE")
	c.run("template", "check", filepath.Join(folder, "none.yaml")).wantError(t, schemas.CodeNotFound, "none.yaml")
	if entries, err := os.ReadDir(c.data); err != nil || len(entries) > 0 {
		t.Errorf("the data folder has %v (error: %v), want nothing", entries, err)
	}
}

// Without a server, templates are listed and no worker is started.
func TestTemplatesAreListedAndShown(t *testing.T) {
	c := newCLI(t)
	folder, _ := c.templates("name: mine\ndescription: of this place\nsession: {idle_timeout: 5m}\n")
	c.env["SLUICE_TEMPLATES"] = folder
	got := c.run("template", "list")
	got.check(t).exits(0).printsPart("TEMPLATE", "default ", "echo-agent ", "of this place")
	list := decode[[]schemas.Template](t, c.run("template", "list", "--json").stdout)
	testkit.Equal(t, "number of templates", len(list), 5)
	c.run("template", "list", "--agent-templates", "codex,aider").check(t).printsPart("codex ", "aider ")
	c.run("template", "list", "--agent-templates", "claude").wantError(t, schemas.CodeInvalidArgument, `"claude": use aider, claude-code`)
	c.run("template", "show", "codex").check(t).exits(0).printsPart("name: codex\n").reports("switched off: --agent-templates codex")
	c.run("template", "show", "mine").check(t).prints("name: mine\ndescription: of this place\nsession:\n  idle_timeout: 5m\n")
	c.run("template", "show", "none").wantError(t, schemas.CodeNotFound, `"none"`)
	c.run("template", "show").wantError(t, schemas.CodeInvalidArgument, "NAME of one template")
	if entries, err := os.ReadDir(c.data); err != nil || len(entries) > 0 {
		t.Errorf("the data folder has %v (error: %v), want nothing: no worker is started", entries, err)
	}
}

func TestExecUsesTemplate(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: mine\nenv: {GREETING: hello}\npolicy: {deny: [rm]}\n---\nname: docs\npolicy: {name: documents}\n")
	run := func(thread, template string, command ...string) outcome {
		return c.run(append([]string{"exec", "--provider", "local", "--thread", thread, "--template", template, "--"}, command...)...)
	}
	run("a", "mine", "sh", "-c", "echo $GREETING").check(t).exits(0).prints("hello\n")
	run("a", "mine", "sh", "-c", "ls | xargs -n1 env rm").wantError(t, schemas.CodePolicyDenied, "refuses rm", "pattern rm")
	run("a", "docs", "ls").wantError(t, schemas.CodeConflict, "mine", "docs")
	run("b", "docs", "git", "status").wantError(t, schemas.CodePolicyDenied, "refuses git")
	run("c", "none", "ls").wantError(t, schemas.CodeNotFound, `"none"`)
	c.good()
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: mine\nenf: {}\n")
	run("d", "mine", "ls").wantError(t, schemas.CodeInvalidArgument, "mine.yaml:2: enf: ")
}

// Every way to a session asks the operator's lists, and a reload reads them again.
func TestTenantsUseWhatTheOperatorAllows(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	folder, _ := c.templates("name: talk\nagent: {command: [cat]}\n")
	c.env["SLUICE_TEMPLATES"], c.env["SLUICE_ALLOW"] = folder, filepath.Join(folder, "allow")
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0").wantError(t, schemas.CodeNotFound, "allow-list")
	c.write(c.env["SLUICE_ALLOW"], "tenants: {default: {templates: [default]}}")
	c.up()
	run := func(line string) outcome {
		return c.run(strings.Fields(strings.ReplaceAll(line, "THREAD", unique()+" --template talk"))...)
	}
	for _, line := range []string{
		"exec --thread THREAD -- true", "exec --detach --thread THREAD -- true", "process start --thread THREAD -- true", "service start THREAD web -- true",
		"session create THREAD", "message --thread THREAD hello",
	} {
		run(line).wantError(t, schemas.CodePermissionDenied, "may not use template talk", "--allow")
	}
	c.run("exec", "--", "true").check(t).exits(0)
	c.write(c.env["SLUICE_ALLOW"], "tenants: {default: {templates: [talk], images: [debian]}}")
	c.run("reload").wantError(t, schemas.CodeInvalidArgument, "allow:1: tenants.default.images", "name the registry")
	c.run("exec", "--thread", unique(), "--", "true").check(t).exits(0)
	c.write(c.env["SLUICE_ALLOW"], "tenants: {default: {templates: [talk]}}")
	c.run("reload").check(t).exits(0)
	run("message --thread THREAD hello").check(t).exits(0).printsPart("hello")
	c.run("exec", "--thread", unique(), "--", "true").wantError(t, schemas.CodePermissionDenied, "template default")
}

// `exec --template codex -- env` printed the key of the model.
func TestAgentTemplatesAreOffByDefault(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.env["SLUICE_SECRET_OPENAI_API_KEY"] = "xyzzy-the-key"
	run := func() outcome {
		return c.run("exec", "--provider", "local", "--thread", unique(), "--template", "codex", "--", "env")
	}
	run().wantError(t, schemas.CodePermissionDenied, "--agent-templates codex")
	c.env["SLUICE_AGENT_TEMPLATES"] = "aider, codex"
	run().check(t).exits(0).printsPart("CODEX_API_KEY=xyzzy-the-key")

	s := c.up()
	c.run("session", "create", unique(), "--template", "codex").check(t).exits(0)
	s.stop()
	c.env["SLUICE_AGENT_TEMPLATES"] = ""
	c.up()
	// The direct path of a session's creation, and the queue of commands, which keeps one for a worker that serves it.
	c.run("session", "create", unique(), "--template", "codex").wantError(t, schemas.CodePermissionDenied, "--agent-templates codex")
	waiting := c.spawn("exec", "--thread", unique(), "--template", "codex", "--", "env")
	waiting.awaitStderr("switched off")
	waiting.signal(syscall.SIGINT)
	waiting.signal(syscall.SIGINT)
	for deadline := time.Now().Add(testkit.Timeout); strings.Contains(c.run("template", "list").stdout, "codex "); {
		if time.Now().After(deadline) {
			t.Fatalf("the template that is switched off is still listed after %s", testkit.Timeout)
		}
	}
}

func TestUpReloadsTemplatesAndServesMetrics(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_SECRET_TEST"] = "xyzzy-the-secret"
	folder, file := c.templates("name: first\nsecrets: {KEY: {env: SLUICE_SECRET_TEST}}\n")
	up := c.spawn("up", "--provider", "local", "--listen", "127.0.0.1:0", "--metrics", "0", "--log-format", "json", "--templates", folder)
	_, metrics, ok := strings.Cut(up.line(), "metrics ")
	if !ok {
		t.Fatal("the line of sluice up has no metrics URL")
	}
	c.run("exec", "--thread", "a", "--template", "first", "--", "sh", "-c", "echo ${#KEY}").check(t).exits(0).prints("16\n")

	c.write(file, "name: second\n")
	up.signal(syscall.SIGHUP)
	up.awaitStderr("templates_reloaded")
	c.run("exec", "--thread", "b", "--template", "second", "--", "true").check(t).exits(0)
	for deadline := time.Now().Add(testkit.Timeout); ; { // it is published right after the reload
		if got := c.run("template", "show", "second"); got.code == 0 && got.stdout == "name: second\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the new template is not shown within %s", testkit.Timeout)
		}
	}
	c.write(file, "name: third\nnettwork: host\n")
	up.signal(syscall.SIGHUP)
	up.awaitStderr(`"file":"` + file + `","line":2,"field":"nettwork"`)
	up.awaitStderr("templates not reloaded")
	// Promises 3: a command that no live worker serves waits, and the user sees why.
	waiting := c.spawn("exec", "--thread", "waiting", "--template", "third", "--", "true")
	waiting.awaitStderr(`no live worker can run the command, which waits in the queue: unknown template "third"`)
	waiting.signal(syscall.SIGINT)
	waiting.signal(syscall.SIGINT)
	c.run("exec", "--thread", "c", "--template", "second", "--", "false").check(t).exits(1)

	body := scrape(t, metrics)
	for _, want := range []string{
		`sluice_commands_total{outcome="success",template="first"} 1`, `sluice_commands_total{outcome="failure",template="second"} 1`,
		`sluice_sessions_total{outcome="created",template="second"} 2`, `sluice_sessions_active{template="first"} 1`, "go_goroutines",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	for _, name := range []string{"session_created", "command_executed", "command_failed"} {
		up.awaitStderr(`"message":"` + name + `"`)
	}
	if strings.Contains(up.stderr.String(), "xyzzy") || strings.Contains(c.run("events").stdout, "xyzzy") || strings.Contains(body, "xyzzy") {
		t.Error("the secret is in a log, an event or a metric")
	}
	up.signal(syscall.SIGINT)
	up.wantExit(0)
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: testkit.Timeout}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	testkit.Must(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return string(body)
}

func TestInvalidMetricsAddressIsRejected(t *testing.T) {
	c := newCLI(t)
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0", "--metrics", "a:b:c").wantError(t, schemas.CodeInvalidArgument, "a:b:c")
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0", "--metrics", "70000").wantError(t, schemas.CodeUnavailable, "70000")
	c.good()
}
