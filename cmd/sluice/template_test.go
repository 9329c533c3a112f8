package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// templates is a folder with one file.
func (c *cli) templates(body string) (folder, file string) {
	c.t.Helper()
	folder = c.t.TempDir()
	file = filepath.Join(folder, "mine.yaml")
	c.write(file, body)
	return folder, file
}

// write replaces a file at once, as an editor does.
func (c *cli) write(file, body string) {
	c.t.Helper()
	if err := os.WriteFile(file+".new", []byte(body), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		c.t.Fatal(err)
	}
}

func TestTemplateCheck(t *testing.T) {
	c := newCLI(t)
	folder, file := c.templates("name: mine\n---\nname: other\n")
	if got := c.run("template", "check", file, "--", folder+"/."); got.code != 1 || !strings.Contains(got.stderr, "template mine is already defined at "+file+":1") {
		t.Errorf("the same file twice: %+v", got)
	}
	if got := c.run("template", "check", folder); got.code != 0 || got.stdout != "mine: ok\nother: ok\n" || got.stderr != "" {
		t.Errorf("%+v", got)
	}
	c.write(file, "name: mine\nhooks:\n  cold_start:\n    - builtin: clean-up\n      timeout: soon\nimg: x\n")
	want := file + `:5: hooks.cold_start[0].timeout: "soon": not a duration: write 30s, 5m or 1h30m` + "\n" + file + ":6: img: unknown field"
	if got := c.run("template", "check", file); got.code != 1 || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("%+v, want %s", got, want)
	}
	c.run("template", "check").wantError(t, schemas.CodeInvalidArgument, "FILE")
	c.run("template", "check", filepath.Join(folder, "none.yaml")).wantError(t, schemas.CodeUnavailable, "none.yaml")
	if entries, err := os.ReadDir(c.data); err != nil || len(entries) > 0 {
		t.Errorf("checking left something in the data folder: %v, %v", entries, err)
	}
}

// Where nothing runs, templates are shown without a worker being started.
func TestTemplateListAndShow(t *testing.T) {
	c := newCLI(t)
	folder, _ := c.templates("name: mine\ndescription: of this place\nsession: {idle_timeout: 5m}\n")
	c.env["SLUICE_TEMPLATES"] = folder
	got := c.run("template", "list")
	for _, name := range []string{"TEMPLATE", "default ", "echo-agent ", "claude-code ", "of this place"} {
		if got.code != 0 || !strings.Contains(got.stdout, name) {
			t.Errorf("%s is not in %+v", name, got)
		}
	}
	var list []schemas.Template
	if got := c.run("template", "list", "--json"); json.Unmarshal([]byte(got.stdout), &list) != nil || len(list) < 8 {
		t.Errorf("%+v", got)
	}
	if got := c.run("template", "show", "mine"); got.stdout != "name: mine\ndescription: of this place\nsession:\n  idle_timeout: 5m\n" {
		t.Errorf("%+v", got)
	}
	c.run("template", "show", "none").wantError(t, schemas.CodeNotFound, `"none"`)
	c.run("template", "show").wantError(t, schemas.CodeInvalidArgument, "name one")
	if entries, err := os.ReadDir(c.data); err != nil || len(entries) > 0 {
		t.Errorf("something was started for it: %v, %v", entries, err)
	}
}

func TestExecWithTemplate(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: mine\nenv: {GREETING: hello}\npolicy: {deny: [rm]}\n---\nname: docs\npolicy: {name: documents}\n")
	run := func(thread, template string, command ...string) outcome {
		return c.run(append([]string{"exec", "--provider", "local", "--thread", thread, "--template", template, "--"}, command...)...)
	}
	if got := run("a", "mine", "sh", "-c", "echo $GREETING"); got.code != 0 || got.stdout != "hello\n" {
		t.Errorf("%+v", got)
	}
	run("a", "mine", "sh", "-c", "ls | xargs -n1 env rm").wantError(t, schemas.CodePolicyDenied, "refuses rm", "pattern rm")
	run("a", "docs", "ls").wantError(t, schemas.CodeConflict, "mine", "docs")
	run("b", "docs", "git", "status").wantError(t, schemas.CodePolicyDenied, "refuses git")
	run("c", "none", "ls").wantError(t, schemas.CodeNotFound, `"none"`)
	c.good()
	c.env["SLUICE_TEMPLATES"], _ = c.templates("name: mine\nenf: {}\n")
	run("d", "mine", "ls").wantError(t, schemas.CodeInvalidArgument, "mine.yaml:2: enf: ")
}

func TestReloadAndMetrics(t *testing.T) {
	c := newCLI(t)
	c.env["SLUICE_SECRET_TEST"] = "xyzzy-the-secret"
	folder, file := c.templates("name: first\nsecrets: {KEY: {env: SLUICE_SECRET_TEST}}\n")
	up := c.spawn("up", "--provider", "local", "--listen", "127.0.0.1:0", "--metrics", "0", "--log-format", "json", "--templates", folder)
	_, metrics, ok := strings.Cut(up.line(), "metrics ")
	if !ok {
		t.Fatal("it does not say where its metrics are")
	}
	if got := c.run("exec", "--thread", "a", "--template", "first", "--", "sh", "-c", "echo ${#KEY}"); got.code != 0 || got.stdout != "16\n" {
		t.Errorf("%+v", got)
	}

	c.write(file, "name: second\n")
	up.signal(syscall.SIGHUP)
	up.awaitStderr("templates_reloaded")
	if got := c.run("exec", "--thread", "b", "--template", "second", "--", "true"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	for deadline := time.Now().Add(patience); ; { // it is written to KV right after
		if got := c.run("template", "show", "second"); got.code == 0 && got.stdout == "name: second\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new template is not shown")
		}
	}
	c.write(file, "name: third\nnettwork: host\n")
	up.signal(syscall.SIGHUP)
	up.awaitStderr(`"file":"` + file + `","line":2,"field":"nettwork"`)
	up.awaitStderr("templates not reloaded")
	c.run("exec", "--thread", "c", "--template", "third", "--", "true").wantError(t, schemas.CodeNotFound, "third")
	if got := c.run("exec", "--thread", "c", "--template", "second", "--", "false"); got.code != 1 {
		t.Errorf("%+v", got)
	}

	body := scrape(t, metrics)
	for _, want := range []string{
		`sluice_commands_total{outcome="success",template="first"} 1`, `sluice_commands_total{outcome="failure",template="second"} 1`,
		`sluice_sessions_total{outcome="created",template="second"} 2`, `sluice_sessions_active{template="first"} 1`, "go_goroutines",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no metric %s", want)
		}
	}
	for _, name := range []string{"session_created", "command_executed", "command_failed"} {
		up.awaitStderr(`"message":"` + name + `"`)
	}
	if strings.Contains(up.stderr.String(), "xyzzy") || strings.Contains(c.run("events").stdout, "xyzzy") || strings.Contains(body, "xyzzy") {
		t.Error("a secret was written down")
	}
	up.signal(syscall.SIGINT)
	if code, _ := up.wait(); code != 0 {
		t.Errorf("sluice up ended with %d", code)
	}
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return string(body)
}

func TestBadMetricsAddress(t *testing.T) {
	c := newCLI(t)
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0", "--metrics", "a:b:c").wantError(t, schemas.CodeInvalidArgument, "a:b:c")
	c.run("up", "--provider", "local", "--listen", "127.0.0.1:0", "--metrics", "70000").wantError(t, schemas.CodeUnavailable, "70000")
	c.good()
}
