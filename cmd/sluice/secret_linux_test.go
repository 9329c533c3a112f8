package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// holding lists the files under a folder that hold a text.
func holding(t *testing.T, dir, text string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(body, []byte(text)) {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What comes by --env or on standard input is written down nowhere: no event, no log, no argument of any process, no file.
func TestSecretsAreWrittenDownNowhere(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up("--log-level", "debug")
	secret, input := "env"+unique(), "stdin"+unique()
	c.env["SECRET"] = secret
	x := c.spawn(execArgs("--key", "k", "--env", "SECRET", "--", "bash", "-c", "read -r line; echo ${#SECRET} ${#line}; read -r line")...)
	if _, err := io.WriteString(x.stdin, input+"\n"); err != nil {
		t.Fatal(err)
	}
	if got := x.line(); got != "19 21" {
		t.Fatalf("%q", got)
	}
	for _, word := range []string{secret, input, s.token} {
		if got := withArgumentPart(t, word); len(got) != 0 {
			t.Errorf("%s is an argument of %v", word, got)
		}
	}
	_ = x.stdin.Close()
	if code, _ := x.wait(); code != 1 {
		t.Errorf("code %d", code)
	}
	// Each way in which such a command fails.
	c.exec("--key", "k", "--env", "SECRET", "--", "other").wantError(t, schemas.CodeConflict)
	if got := c.exec("--env", "SECRET", "--", "no-such-command"); got.code != 127 {
		t.Errorf("%+v", got)
	}
	c.exec("--env", "SECRET", "--env", "SLUICE_X="+secret, "--", "true").wantError(t, schemas.CodeInvalidArgument)
	told := c.run("events", "--json").stdout + c.run("process", "list", "--all", "--json").stdout + x.stderr.String()
	for _, word := range []string{secret, input} {
		if strings.Contains(told, word) {
			t.Errorf("%s is told", word)
		}
		if strings.Contains(s.log.String(), word) {
			t.Errorf("%s is logged", word)
		}
		if files := holding(t, c.data, word); len(files) != 0 {
			t.Errorf("%s is in %v", word, files)
		}
	}
	if files := holding(t, c.data, s.token); len(files) != 1 {
		t.Errorf("the token is in %v", files)
	}
	// What a command prints itself is its output, kept as such.
	c.exec("--env", "SECRET", "--", "bash", "-c", "echo $SECRET")
	if files := holding(t, filepath.Join(c.data, "nats"), secret); len(files) == 0 {
		t.Error("the search finds nothing: it proves nothing")
	}
}

func withArgumentPart(t *testing.T, part string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(part)) {
			out = append(out, f)
		}
	}
	return out
}

// What comes from a command's name, its arguments or a message reaches a terminal as text alone. Its output is its own.
func TestHostileTextDoesNotDriveTheTerminal(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
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
				t.Errorf("%s: %q", name, text)
			}
		}
	}
	for _, name := range []string{"events", "list"} {
		for line := range strings.Lines(shown[name].stdout) {
			if strings.HasPrefix(line, "forged") {
				t.Errorf("%s: a line of its own: %q", name, line)
			}
		}
	}
	if got := c.exec("--", "printf", `\033[31m`); got.stdout != "\x1b[31m" {
		t.Errorf("output is not to be touched: %q", got.stdout)
	}
}
