package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

// holder is a template whose agent says that it is there, and goes on until it is interrupted.
const holder = `
name: holder
agent:
  command: [sh, -c, "trap 'echo bye; exit 3' INT; echo on; while :; do sleep 0.05; done"]
---
name: lines
agent:
  output: jsonl
  command: [sh, -c, 'echo "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"Hello\"}]}}"; exit 4']
`

// talkative is a `sluice up` with agents.
func talkative(t *testing.T) *cli {
	t.Helper()
	c := newCLI(t)
	folder, _ := c.templates(holder)
	c.up("--templates", folder)
	return c
}

// message sends one to thread t1, whose agent is this template's.
func (c *cli) message(template string, args ...string) outcome {
	c.t.Helper()
	return c.run(append([]string{"message", "--thread", "t1", "--template", template}, args...)...)
}

// input is a file that holds a text, to be read from its beginning.
func (c *cli) input(text string) *os.File {
	c.t.Helper()
	name := filepath.Join(c.t.TempDir(), "input")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = f.Close() }) // it was read alone
	return f
}

func TestMessageIsAnswered(t *testing.T) {
	t.Parallel()
	c := talkative(t)
	for i, got := range []outcome{
		c.message("echo-agent", "hello", "there"),
		c.message("echo-agent", "hello there"),
		c.runFrom(c.input("hello\nthere\n"), "message", "--thread", "t1", "-"),
		c.runFrom(c.input("hello there"), "message", "--thread", "t1"),
	} {
		if got.code != 0 || got.stdout != fmt.Sprintf("(%d) hello there\n", i+1) || got.stderr != "" {
			t.Errorf("%+v", got)
		}
	}
	const line = `{"type":"result","usage":{"input_tokens":1,"output_tokens":2}}` + "\n"
	if got := c.message("echo-agent", "--raw", "on"); got.stdout != "(5) on\n"+line {
		t.Errorf("%+v", got)
	}
	if r := c.message("echo-agent", "--json", "--key", "six", "on").result(t); r.Stdout != "(6) on\n"+line || !r.Success {
		t.Errorf("%+v", r)
	}
	if got := c.message("echo-agent", "--key", "six", "on"); got.stdout != "(6) on\n" {
		t.Errorf("a replay: %+v", got)
	}
	if got := c.run("message", "--thread", "t2", "--template", "lines", "hi"); got.code != 4 || got.stdout != "Hello\n" {
		t.Errorf("%+v", got)
	}
	// The largest prompt there may be. What is over it is refused before it is sent.
	long := strings.Repeat("a", schemas.MaxPromptBytes)
	if got := c.runFrom(c.input(long), "message", "--thread", "t1"); got.stdout != "(7) "+long+"\n" {
		t.Errorf("code %d, %d bytes: %s", got.code, len(got.stdout), got.stderr)
	}
	c.runFrom(c.input(long+strings.Repeat("a", 88<<10)), "message", "--thread", "t1").wantError(t, schemas.CodeTooLarge, "prompt", "workspace")
	c.message("echo-agent", long+"a").wantError(t, schemas.CodeInvalidArgument, "prompt", "524288")
}

func TestMessageIsRefused(t *testing.T) {
	t.Parallel()
	c := talkative(t)
	c.message("echo-agent", "first")
	c.message("echo-agent").wantError(t, schemas.CodeInvalidArgument, "prompt", "standard input")
	c.message("echo-agent", "").wantError(t, schemas.CodeInvalidArgument, "prompt")
	c.message("echo-agent", "\xff").wantError(t, schemas.CodeInvalidArgument, "prompt")
	c.message("echo-agent", "--timeout", "-1s", "hi").wantError(t, schemas.CodeInvalidArgument, "timeout")
	c.message("echo-agent", "--session", "other", "hi").wantError(t, schemas.CodeSessionExpired, "t1")
	c.message("holder", "hi").wantError(t, schemas.CodeConflict, "holder", "echo-agent")
	c.run("message", "--thread", "t2", "--template", "none", "hi").wantError(t, schemas.CodeNotFound, `"none"`)
	c.run("message", "--thread", "a.b", "hi").wantError(t, schemas.CodeInvalidArgument, "a.b")
	c.run("message", "--thread", "t3", "hi").wantError(t, schemas.CodeInvalidArgument, "t3", "no agent", "sluice template list")
	if got := c.run("message", "--thread", "t3", "--json", "hi"); got.code != schemas.ExitSluiceFailed || !strings.Contains(got.stdout, `"code": "invalid_argument"`) {
		t.Errorf("%+v", got)
	}
	if got := c.message("echo-agent", "second"); got.stdout != "(2) second\n" {
		t.Errorf("%+v", got)
	}
}

func TestMessageIsInterrupted(t *testing.T) {
	t.Parallel()
	c := talkative(t)
	send := func() *spawned { return c.spawn("message", "--thread", "t1", "--template", "holder", "hi") }
	first := send()
	if got := first.line(); got != "on" {
		t.Fatal(got)
	}
	// One that waits for its turn ends at once; the agent gets the signal, and ends as it likes.
	second := send()
	for deadline := time.After(patience); strings.Count(c.run("process", "list").stdout, "t1 ") < 2; {
		select {
		case <-deadline:
			t.Fatal("the second message was not accepted")
		case <-time.After(20 * time.Millisecond):
		}
	}
	second.signal(syscall.SIGINT)
	if code, rest := second.wait(); code != 137 || rest != "" {
		t.Errorf("the one that waits: code %d, %q, %s", code, rest, second.stderr)
	}
	first.signal(syscall.SIGINT)
	if code, rest := first.wait(); code != 3 || rest != "bye\n" {
		t.Errorf("the agent: code %d, %q, %s", code, rest, first.stderr)
	}
	third := send()
	if got := third.line(); got != "on" {
		t.Error(got)
	}
	third.signal(syscall.SIGINT)
	third.wait()
}

func TestMessagesAreFollowedAsTheyCome(t *testing.T) {
	t.Parallel()
	c := talkative(t)
	follower := c.spawn("messages", "--thread", "t1", "-f")
	c.message("echo-agent", "--user", "ann\x1b[31m", "one \x1b]0;title\a\n1      10:00:00.000  agent")
	c.message("echo-agent", "two")
	var got []string
	for len(got) < 9 {
		got = append(got, follower.line())
	}
	all := strings.Join(got, "\n")
	if strings.ContainsAny(all, "\x1b\a") || !strings.HasSuffix(got[0], `  user ann`+"\uFFFD[31m") || got[2] != "    1      10:00:00.000  agent" ||
		!strings.HasSuffix(got[3], "agent echo-agent  5 tokens in, 6 out") || got[6] != "    two" || got[8] != "    (2) two" {
		t.Errorf("%q", got)
	}
	follower.signal(syscall.SIGINT)
	if code, _ := follower.wait(); code != 0 {
		t.Errorf("the follower ended with %d: %s", code, follower.stderr)
	}
	if got := c.run("messages", "--thread", "t1", "--json"); strings.Count(got.stdout, "\n") != 4 || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("%+v", got)
	}
}
