package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// filesWith lists the files under a folder that contain a text.
func filesWith(t *testing.T, dir, text string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the server has removed it meanwhile
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if bytes.Contains(body, []byte(text)) {
			out = append(out, path)
		}
		return nil
	})
	testkit.Must(t, err)
	return out
}

// Values of --env and standard input are in no event, log, argument of a process, or file.
func TestSecretsAreStoredNowhere(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up("--log-level", "debug")
	secret, input := "env"+unique(), "stdin"+unique()
	c.env["SECRET"] = secret
	x := c.spawn(execArgs("--key", "k", "--env", "SECRET", "--", "bash", "-c", "read -r line; echo ${#SECRET} ${#line}; read -r line")...)
	x.write(input + "\n")
	x.wantLine("19 21")
	for _, word := range []string{secret, input, s.token} {
		for pid, args := range commandLines(t) {
			if bytes.Contains(args, []byte(word)) {
				t.Errorf("%s is an argument of process %d, want of none", word, pid)
			}
		}
	}
	_ = x.stdin.Close()
	x.wantExit(1)
	// Commands that fail must not show them either.
	c.exec("--key", "k", "--env", "SECRET", "--", "other").wantError(t, schemas.CodeConflict)
	c.exec("--env", "SECRET", "--", "no-such-command").check(t).exits(127)
	c.exec("--env", "SECRET", "--env", "SLUICE_X="+secret, "--", "true").wantError(t, schemas.CodeInvalidArgument)
	shown := c.run("events", "--json").stdout + c.run("process", "list", "--all", "--json").stdout + x.stderr.String()
	for _, word := range []string{secret, input} {
		if strings.Contains(shown, word) {
			t.Errorf("%s is in the output of a command", word)
		}
		if strings.Contains(s.log.String(), word) {
			t.Errorf("%s is in the log of sluice up", word)
		}
		if files := filesWith(t, c.data, word); len(files) != 0 {
			t.Errorf("%s is in the files %v, want none", word, files)
		}
	}
	if files := filesWith(t, c.data, s.token); len(files) != 1 {
		t.Errorf("the token is in the files %v, want one", files)
	}
	// A command's own output is stored: the search above can find a value.
	c.exec("--env", "SECRET", "--", "bash", "-c", "echo $SECRET")
	if files := filesWith(t, filepath.Join(c.data, "nats"), secret); len(files) == 0 {
		t.Error("the secret is in no file after it was printed: the search does not work")
	}
}

// Hardening 7: a template's secrets are in no file, and the sandboxes that a killed worker left have them again.
func TestSecretsOfATemplateAreInNoFile(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	secret := unique()
	c.env["SLUICE_SECRET_TEST"] = secret
	folder, _ := c.templates("name: keyed\nenv: {PLAIN: stored}\nsecrets: {KEY: {env: SLUICE_SECRET_TEST}}\n")
	start := []string{"up", "--provider", "local", "--listen", "127.0.0.1:0", "--templates", folder}
	up := c.spawn(start...)
	upURL(t, up.stdout)
	run := func() {
		t.Helper()
		c.runFrom(c.input(secret), "exec", "-i", "--thread", "t1", "--template", "keyed", "--", "sh", "-c", `[ "$KEY" = "$(cat)" ] && echo "it has both, $PLAIN"`).
			check(t).exits(0).prints("it has both, stored\n")
	}
	run()
	before := c.run("sandbox", "list", "--json").check(t).exits(0).got.stdout
	if files := filesWith(t, c.data, secret); len(files) != 0 {
		t.Errorf("the secret is in the files %v, want in none", files)
	}
	if files := filesWith(t, filepath.Join(c.data, "run"), "stored"); len(files) == 0 {
		t.Error("the template's environment is in no file of the run folder: the search does not work")
	}
	up.kill()
	up = c.spawn(start...)
	upURL(t, up.stdout)
	run()
	testkit.Equal(t, "sandboxes", decode[[]schemas.SandboxInfo](t, c.run("sandbox", "list", "--json").check(t).exits(0).got.stdout)[0].ID,
		decode[[]schemas.SandboxInfo](t, before)[0].ID)
	up.signal(syscall.SIGTERM)
	up.wantExit(0)
}

// Names, arguments and messages are printed without control characters. A command's output is unchanged.
func TestControlCharactersDoNotReachTerminal(t *testing.T) {
	c := newUp(t)
	const evil = "\x1b]0;owned\a\x1b[2J\u009b31m\u202e\r\nforged 12 process.exited\t\x7f"
	shown := map[string]outcome{
		"not found":   c.exec("--", "no"+evil),
		"thread":      c.run("exec", "--provider", "local", "--thread", evil, "--", "true"),
		"key":         c.exec("--key", evil, "--", "true", evil),
		"conflict":    c.exec("--key", evil, "--", "false"),
		"dir":         c.exec("-C", "no"+evil, "--", "true"),
		"flag":        c.run("--no" + evil),
		"command":     c.run("no" + evil),
		"logs":        c.run("logs", evil),
		"signal":      c.run("process", "kill", "--signal", evil, schemas.ProcessID("default", "t1", evil)),
		"events":      c.run("events"),
		"list":        c.run("process", "list", "--all"),
		"data folder": (&cli{t: t, data: "/dev/null/" + evil, env: c.env}).run("doctor"),
	}
	for name, got := range shown {
		for _, text := range []string{got.stdout, got.stderr} {
			if strings.ContainsAny(text, "\x1b\a\u009b\u202e\r\x7f") {
				t.Errorf("%s: output = %q, want no control characters", name, text)
			}
		}
	}
	for _, name := range []string{"events", "list"} {
		for line := range strings.Lines(shown[name].stdout) {
			if strings.HasPrefix(line, "forged") {
				t.Errorf("%s: argument became the line %q", name, line)
			}
		}
	}
	c.exec("--", "printf", `\033[31m`).check(t).prints("\x1b[31m")
}
