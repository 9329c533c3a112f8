package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// holdTemplates has an agent that prints a line and runs until it is interrupted, and one that prints JSON lines.
const holdTemplates = `
name: holder
agent:
  command: [sh, -c, "trap 'echo bye; exit 3' INT; echo on; while :; do sleep 0.05; done"]
---
name: lines
agent:
  output: jsonl
  command: [sh, -c, 'echo "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"Hello\"}]}}"; exit 4']
`

// newAgents starts `sluice up` with agents.
func newAgents(t *testing.T) *cli {
	t.Helper()
	c := newCLI(t)
	folder, _ := c.templates(holdTemplates)
	c.up("--templates", folder)
	return c
}

// message sends a message to thread t1, with this template.
func (c *cli) message(template string, args ...string) outcome {
	c.t.Helper()
	return c.run(append([]string{"message", "--thread", "t1", "--template", template}, args...)...)
}

// input is a standard input that holds a text.
func (c *cli) input(text string) *os.File {
	c.t.Helper()
	name := filepath.Join(c.t.TempDir(), "input")
	testkit.Must(c.t, os.WriteFile(name, []byte(text), 0o600))
	f, err := os.Open(name)
	testkit.Must(c.t, err)
	c.t.Cleanup(func() { _ = f.Close() }) // it was only read
	return f
}

func TestMessageIsAnswered(t *testing.T) {
	t.Parallel()
	c := newAgents(t)
	for i, got := range []outcome{
		c.message("echo-agent", "hello", "there"),
		c.message("echo-agent", "hello there"),
		c.runFrom(c.input("hello\nthere\n"), "message", "--thread", "t1", "-"),
		c.runFrom(c.input("hello there"), "message", "--thread", "t1"),
	} {
		got.check(t).exits(0).prints(fmt.Sprintf("(%d) hello there\n", i+1)).reportsNothing()
	}
	const line = `{"type":"result","usage":{"input_tokens":1,"output_tokens":2}}` + "\n"
	c.message("echo-agent", "--raw", "on").check(t).prints("(5) on\n" + line)
	r := c.message("echo-agent", "--json", "--key", "six", "on").result(t)
	testkit.Equal(t, "stdout", r.Stdout, "(6) on\n"+line)
	testkit.Equal(t, "success", r.Success, true)
	c.message("echo-agent", "--key", "six", "on").check(t).prints("(6) on\n")
	c.run("message", "--thread", "t2", "--template", "lines", "hi").check(t).exits(4).prints("Hello\n")
	// The largest prompt. A larger one is rejected before it is sent.
	long := strings.Repeat("a", schemas.MaxPromptBytes)
	if got := c.runFrom(c.input(long), "message", "--thread", "t1"); got.stdout != "(7) "+long+"\n" {
		t.Errorf("answer to the largest prompt: exit code %d with %d bytes, want %d: %s", got.code, len(got.stdout), len(long)+5, got.stderr)
	}
	c.runFrom(c.input(long+strings.Repeat("a", 88<<10)), "message", "--thread", "t1").wantError(t, schemas.CodeTooLarge, "prompt", "workspace")
	c.message("echo-agent", long+"a").wantError(t, schemas.CodeInvalidArgument, "prompt", "524288")
}

func TestInvalidMessageIsRejected(t *testing.T) {
	t.Parallel()
	c := newAgents(t)
	c.message("echo-agent", "first")
	c.message("echo-agent").wantError(t, schemas.CodeInvalidArgument, "prompt", "standard input")
	c.message("echo-agent", "").wantError(t, schemas.CodeInvalidArgument, "prompt")
	c.message("echo-agent", "\xff").wantError(t, schemas.CodeInvalidArgument, "prompt")
	c.message("echo-agent", "--timeout", "-1s", "hi").wantError(t, schemas.CodeInvalidArgument, "timeout")
	c.message("echo-agent", "--session", "other", "hi").wantError(t, schemas.CodeSessionExpired, "t1")
	c.message("holder", "hi").wantError(t, schemas.CodeConflict, "holder", "echo-agent")
	waiting := c.spawn("message", "--thread", "t2", "--template", "none", "hi") // another worker may have the template
	waiting.awaitStderr(`unknown template "none"`)
	waiting.kill()
	c.run("message", "--thread", "a.b", "hi").wantError(t, schemas.CodeInvalidArgument, "a.b")
	c.run("message", "--thread", "t3", "hi").wantError(t, schemas.CodeInvalidArgument, "t3", "no agent", "sluice template list")
	c.run("message", "--thread", "t3", "--json", "hi").check(t).exits(schemas.ExitSluiceFailed).printsPart(`"code": "invalid_argument"`)
	c.message("echo-agent", "second").check(t).prints("(2) second\n")
}

func TestMessageIsInterrupted(t *testing.T) {
	t.Parallel()
	c := newAgents(t)
	send := func() *spawned { return c.spawn("message", "--thread", "t1", "--template", "holder", "hi") }
	first := send()
	first.wantLine("on")
	// A message that waits for its turn ends at once. A running agent gets the signal and may handle it.
	second := send()
	for deadline := time.After(testkit.Timeout); strings.Count(c.run("process", "list").stdout, "t1 ") < 2; {
		select {
		case <-deadline:
			t.Fatalf("the second message was not accepted within %s", testkit.Timeout)
		case <-time.After(20 * time.Millisecond):
		}
	}
	second.signal(syscall.SIGINT)
	second.wantEnd(137, "")
	first.signal(syscall.SIGINT)
	first.wantEnd(3, "bye\n")
	third := send()
	third.wantLine("on")
	third.signal(syscall.SIGINT)
	third.wait()
}

func TestMessagesAreFollowedAsTheyCome(t *testing.T) {
	t.Parallel()
	c := newAgents(t)
	follower := c.spawn("messages", "--thread", "t1", "-f")
	c.message("echo-agent", "--user", "ann\x1b[31m", "one \x1b]0;title\a\n1      10:00:00.000  agent")
	c.message("echo-agent", "two")
	var got []string
	for len(got) < 9 {
		got = append(got, follower.line())
	}
	all := strings.Join(got, "\n")
	if strings.ContainsAny(all, "\x1b\a") {
		t.Errorf("messages = %q, want no control characters", all)
	}
	for i, want := range map[int]string{
		0: "  user ann\uFFFD[31m", 2: "    1      10:00:00.000  agent", 3: "agent echo-agent  5 tokens in, 6 out", 6: "    two", 8: "    (2) two",
	} {
		if !strings.HasSuffix(got[i], want) || (strings.HasPrefix(want, "    ") && got[i] != want) {
			t.Errorf("line %d = %q, want one that ends with %q", i, got[i], want)
		}
	}
	follower.signal(syscall.SIGINT)
	follower.wantExit(0)
	c.run("messages", "--thread", "t1", "--json").check(t).printsMatch(`^([^\n]+\n){4}$`).omits("\x1b")
}

func TestMessagesArePrintedAsTextAndJSON(t *testing.T) {
	var out bytes.Buffer
	m := &Main{Stdout: &out}
	msg := &schemas.Message{
		Seq: 12, Thread: "t1", Process: "p1", Role: schemas.RoleAgent, Template: "tpl", Text: "one\n13  10:00:00.000  user\x1b[2J\ntwo\n", Truncated: true,
		Time: time.Unix(0, 0), Reason: schemas.ReasonExited, ExitCode: 3, Usage: &schemas.Usage{InputTokens: 5, OutputTokens: 6},
	}
	testkit.Must(t, messagePrinter(m, false)(msg))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, part := range []string{"12 ", "agent tpl", "exit code 3", "5 tokens in, 6 out", "sluice logs p1"} {
		if !strings.Contains(lines[0], part) {
			t.Errorf("header = %q, want one with %q", lines[0], part)
		}
	}
	for _, l := range lines[1:] {
		if !strings.HasPrefix(l, "    ") || strings.Contains(l, "\x1b") {
			t.Errorf("line = %q, want it indented and without control characters", l)
		}
	}
	out.Reset()
	testkit.Must(t, messagePrinter(m, true)(msg))
	if got := decode[schemas.Message](t, out.String()); got.Text != msg.Text || got.Seq != 12 {
		t.Errorf("message = %s, want sequence 12 with the whole text", &out)
	}
}
