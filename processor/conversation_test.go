package processor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

// agent is a template whose agent is a shell script, with these arguments.
func agent(script string, args ...string) *schemas.Template {
	return &schemas.Template{Name: "agent", Agent: &schemas.TemplateAgent{Command: append([]string{"sh", "-c", script}, args...)}}
}

// held is an agent that runs first, and answers once there is a file named after the prompt.
func held(first string) *schemas.Template {
	return agent(`read p; echo "begin $p" >>order; ` + first + `; until [ -e "go-$p" ]; do sleep 0.02; done; echo "end $p" >>order; echo "answer to $p"`)
}

// message is a prompt for thread t.
func message(key, prompt string) *schemas.Command {
	return &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpMessage, Thread: "t", Key: key, Template: "agent",
		Message: &schemas.MessageRequest{Prompt: prompt, User: "ann"},
	}
}

// read returns a file of thread t's workspace, empty when there is none.
func (c *cell) read(name string) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "t", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	return string(b)
}

// streamFinish waits for stream.finished of a message.
func (c *cell) streamFinish(cmd *schemas.Command) schemas.StreamFinish {
	c.t.Helper()
	var f schemas.StreamFinish
	c.must(c.awaitType(processOf(cmd), schemas.TypeStreamFinished).Decode(&f))
	return f
}

// sequence lists the calls of the hooks for these commands, in order: phase and key.
func (h *hooks) sequence(cmds ...*schemas.Command) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, call := range h.calls {
		for _, cmd := range cmds {
			if call.data.Occasion == processOf(cmd) {
				out = append(out, string(call.data.Phase)+" "+cmd.Key)
			}
		}
	}
	return strings.Join(out, ", ")
}

// set changes what the hooks do.
func (h *hooks) set(do func(context.Context, schemas.HookData, string, func(context.Context, []string, []byte) error) ([]string, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.do = do
}

// talking configures a worker with a template and these hooks.
func talking(t *schemas.Template, h *hooks) func(*processor.Config) {
	return func(cfg *processor.Config) {
		with(t)(cfg)
		cfg.Hooks = h
	}
}

func TestMessagesOfAThreadAreAnsweredInOrder(t *testing.T) {
	c, h := newCell(t), &hooks{}
	c.worker("w1", talking(held(":"), h))
	one, two, three := message("1", "1"), message("2", "2"), message("3", "3")
	first := c.send(one)
	c.awaitType(processOf(one), schemas.TypeProcessStarted)
	second, third := c.send(two), c.send(three)
	c.wantRecords(processOf(two), schemas.TypeProcessAccepted)
	for _, name := range []string{"go-3", "go-2", "go-1"} {
		c.file(name)
	}
	for i, r := range []*schemas.Result{c.end(first), c.end(second), c.end(third)} {
		if want := fmt.Sprintf("answer to %d\n", i+1); r.Stdout != want || !r.Success || len(r.Args) != 2 {
			t.Errorf("%+v, want %q", r, want)
		}
	}
	c.streamFinish(three)
	if got := c.read("order"); got != "begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n" {
		t.Errorf("got = %q, want %q", got, "begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n")
	}
	if got := h.sequence(one, two, three); got != "message 1, stream_finish 1, message 2, stream_finish 2, message 3, stream_finish 3" {
		t.Errorf("got = %q, want %q", got, "message 1, stream_finish 1, message 2, stream_finish 2, message 3, stream_finish 3")
	}
	// Messages of another thread do not wait for this one's.
	slow, other := message("slow", "slow"), message("other", "1")
	other.Thread = "t2"
	call := c.send(slow)
	c.awaitType(processOf(slow), schemas.TypeProcessStarted)
	elsewhere := c.send(other)
	c.awaitType(processOf(other), schemas.TypeProcessStarted)
	c.must(os.WriteFile(filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "t2", "go-1"), nil, 0o600))
	c.end(elsewhere)
	c.file("go-slow")
	c.end(call)
}

func TestKillEndsAQueuedMessageAtOnce(t *testing.T) {
	for _, k := range []struct {
		name string
		ctl  schemas.Control
	}{
		{"kill", schemas.Control{Kill: &schemas.KillRequest{GraceMS: schemas.MaxTimeoutMS}}},
		{"interrupt", schemas.Control{Signal: &schemas.SignalRequest{Signal: "SIGINT"}}},
		{"SIGTERM", schemas.Control{Signal: &schemas.SignalRequest{Signal: "SIGTERM"}}},
	} {
		t.Run(k.name, func(t *testing.T) {
			c, h := newCell(t), &hooks{}
			w := c.worker("w1", talking(held(":"), h))
			one, two, three := message("1", "1"), message("2", "2"), message("3", "3")
			first := c.send(one)
			c.awaitType(processOf(one), schemas.TypeProcessStarted)
			second, third := c.send(two), c.send(three)
			c.must(w.control(processOf(three), schemas.Control{Signal: &schemas.SignalRequest{Signal: "SIGCONT"}}))
			c.must(w.control(processOf(two), k.ctl))
			r := c.end(second)
			wantFields(t, r, schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 137})
			equal(t, "error", r.Error, nil)
			c.wantRecords(processOf(two), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
			c.wantRecords(processOf(one), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
			c.wantRecords(processOf(three), schemas.TypeProcessAccepted)
			c.file("go-1")
			c.file("go-3")
			for _, r := range []*schemas.Result{c.end(first), c.end(third)} {
				wantFields(t, r, schemas.Result{Success: true})
			}
			c.streamFinish(three)
			if got := h.sequence(one, two, three); got != "message 1, stream_finish 1, message 3, stream_finish 3" {
				t.Errorf("got = %q, want %q", got, "message 1, stream_finish 1, message 3, stream_finish 3")
			}
		})
	}
}

func TestKillEndsTheWholeTreeOfAnAgent(t *testing.T) {
	c, h := newCell(t), &hooks{}
	w := c.worker("w1", talking(agent(`trap "" TERM; echo part; (sleep 0.5; echo late >late) & echo on; wait; sleep 300`), h))
	cmd := message("k", "hello")
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{}}))
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 137, Stdout: "part\non\n"})
	f := c.streamFinish(cmd)
	wantFields(t, f, schemas.StreamFinish{Reason: schemas.ReasonKilled, Process: processOf(cmd)})
	equal(t, "failed hooks", len(f.Failed), 0)
	calls := h.of(schemas.PhaseStreamFinish)
	if len(calls) != 1 {
		t.Fatalf("stream_finish ran %d times, want once", len(calls))
	}
	wantFields(t, calls[0].data.Message, schemas.Message{Text: "part\non\n", Reason: schemas.ReasonKilled, ExitCode: 137})
	if calls[0].data.Sandbox == nil {
		t.Error("stream_finish got no sandbox")
	}
}

func TestCriticalHookRejectsAMessage(t *testing.T) {
	c, h := newCell(t), &hooks{}
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseMessage && data.Message.Text == "bad" {
			return []string{"moderation"}, schemas.Errorf(schemas.CodePolicyDenied, "not allowed here")
		}
		return nil, nil
	})
	c.worker("w1", talking(agent("cat >>ran"), h))
	cmd := message("k", "bad")
	r := c.exec(cmd)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodePolicyDenied)})
	wantMessage(t, r.Error, "not allowed here")
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessRejected)
	wantFields(t, c.streamFinish(cmd), schemas.StreamFinish{Reason: schemas.ReasonRejected})
	wantFields(t, c.exec(message("k2", "good")), schemas.Result{Success: true})
	if got := c.read("ran"); got != "good" {
		t.Errorf("prompts that ran are %q, want %q", got, "good")
	}
}

func TestFailedHooksAfterAnAnswerAreReported(t *testing.T) {
	c, h := newCell(t), &hooks{}
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseStreamFinish {
			return []string{"push-workspace"}, schemas.Errorf(schemas.CodeUnavailable, "the store is away")
		}
		return nil, nil
	})
	c.worker("w1", talking(agent("cat"), h))
	for _, key := range []string{"k1", "k2"} {
		cmd := message(key, "hello")
		wantFields(t, c.exec(cmd), schemas.Result{Success: true, Stdout: "hello"})
		wantFields(t, c.streamFinish(cmd), schemas.StreamFinish{Reason: schemas.ReasonExited, Failed: []string{"push-workspace"}})
	}
}

func TestPromptIsAnArgumentOrStdin(t *testing.T) {
	yes, no := true, false
	const prompt = "$(id) `id` \"'\\ --x\nsecond line {prompt} \u00e9"
	script := `printf '<%s>' "$@"; cat`
	for _, k := range []struct {
		name  string
		args  []string
		stdin *bool
		want  string
	}{
		{"input", []string{"sh", "-p"}, nil, "<-p>" + prompt},
		{"argument", []string{"sh", "{prompt}"}, nil, "<" + prompt + ">"},
		{"within an argument", []string{"sh", "--ask={prompt}", "-"}, nil, "<--ask=" + prompt + "><->"},
		{"both", []string{"sh", "{prompt}"}, &yes, "<" + prompt + ">" + prompt},
		{"neither", []string{"sh", "x"}, &no, "<x>"},
	} {
		t.Run(k.name, func(t *testing.T) {
			c, h := newCell(t), &hooks{}
			recipe := agent(script, k.args...)
			recipe.Agent.Stdin = k.stdin
			c.worker("w1", talking(recipe, h))
			cmd := message("k", prompt)
			r := c.exec(cmd)
			wantFields(t, r, schemas.Result{Stdout: k.want})
			// The record has the template's command; the prompt is in the message history.
			if got := strings.Join(r.Args[2:], " "); got != strings.Join(k.args, " ") {
				t.Errorf("recorded arguments are %q, want %q", got, k.args)
			}
			calls := h.of(schemas.PhaseMessage)
			if len(calls) != 1 {
				t.Fatalf("the message hooks ran %d times, want once", len(calls))
			}
			m := calls[0].data.Message
			wantFields(t, m, schemas.Message{Text: prompt, Role: schemas.RoleUser, User: "ann", Template: "agent", Process: r.Process, Thread: "t"})
			if m.Session == "" {
				t.Error("the message has no session")
			}
		})
	}
}

func TestAgentTimeout(t *testing.T) {
	for _, k := range []struct {
		name              string
		template, request int64
	}{{"the template's", 200, 0}, {"the message's", 3_600_000, 200}} {
		t.Run(k.name, func(t *testing.T) {
			c, h := newCell(t), &hooks{}
			recipe := agent("echo on; sleep 300")
			recipe.Agent.TimeoutMS = k.template
			c.worker("w1", talking(recipe, h))
			cmd := message("k", "hello")
			cmd.Message.TimeoutMS = k.request
			wantFields(t, c.exec(cmd), schemas.Result{Reason: schemas.ReasonTimedOut, ExitCode: 124})
			wantFields(t, c.streamFinish(cmd), schemas.StreamFinish{Reason: schemas.ReasonTimedOut})
		})
	}
}

func TestTemplateWithoutAnAgentRefusesMessages(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", with(&schemas.Template{Name: "agent"}))
	for _, durable := range []bool{false, true} {
		cmd := message(fmt.Sprint(durable), "hello")
		_, answers := w.deliver(cmd, durable, 1)
		r := c.terminal(answers)
		wantFields(t, r, schemas.Result{Error: coded(schemas.CodeInvalidArgument)})
		wantMessage(t, r.Error, "agent")
		equal(t, "path", r.Error.Details["path"], "template")
		if durable {
			c.wantRecords(processOf(cmd), schemas.TypeProcessRejected)
		} else {
			c.wantRecords(processOf(cmd))
		}
	}
}

func TestMessageKeyRunsOnce(t *testing.T) {
	c, h := newCell(t), &hooks{}
	w := c.worker("w1", talking(held(":"), h))
	cmd := message("k", "1")
	first := c.send(cmd)
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	_, attached := w.deliver(cmd, false, 1)
	c.file("go-1")
	c.end(first)
	wantFields(t, c.terminal(attached), schemas.Result{Stdout: "answer to 1\n"})
	c.streamFinish(cmd)
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: "answer to 1\n"})
	if _, answers := w.deliver(message("k", "2"), false, 1); c.terminal(answers).Error.Code != schemas.CodeConflict {
		t.Error("another prompt with the same key is not a conflict")
	}
	if got := h.sequence(cmd); got != "message k, stream_finish k" {
		t.Errorf("got = %q, want %q", got, "message k, stream_finish k")
	}
	if got := c.read("order"); got != "begin 1\nend 1\n" {
		t.Errorf("got = %q, want %q", got, "begin 1\nend 1\n")
	}
}

func TestHooksGetTheAnswerAndItsTokens(t *testing.T) {
	for _, k := range []struct {
		name, script, text string
		usage              *schemas.Usage
	}{
		{"text", `echo "Hello, you."; echo no >&2`, "Hello, you.\n", nil},
		{"text with usage", `printf 'Hello.\n{"type":"result","usage":{"input_tokens":3,"output_tokens":4}}\n'`, "Hello.\n", &schemas.Usage{InputTokens: 3, OutputTokens: 4}},
		{"JSON lines", `cat <<'E'
{"type":"system","session":"x"}
{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"},{"type":"tool_use","name":"x"}]}}
{"type":"result","result":"Hello","usage":{"input_tokens":5,"output_tokens":6}}
E`, "Hello\n", &schemas.Usage{InputTokens: 5, OutputTokens: 6}},
		{"what is no text", `printf 'a\377\376b'; exit 3`, "a\uFFFDb", nil},
	} {
		t.Run(k.name, func(t *testing.T) {
			c, h := newCell(t), &hooks{}
			c.worker("w1", talking(agent(k.script), h))
			cmd := message("k", "hello")
			r := c.exec(cmd)
			f := c.streamFinish(cmd)
			calls := h.of(schemas.PhaseStreamFinish)
			if len(calls) != 1 {
				t.Fatalf("stream_finish ran %d times, want once", len(calls))
			}
			data := calls[0].data
			m := data.Message
			wantFields(t, m, schemas.Message{Text: k.text, Role: schemas.RoleAgent, User: "ann", Template: "agent", Reason: r.Reason})
			equal(t, "truncated", m.Truncated, false)
			equal(t, "exit code", m.ExitCode, r.ExitCode)
			testkit.Equal(t, "usage of the hooks", data.Usage, k.usage)
			testkit.Equal(t, "usage of the message", m.Usage, k.usage)
			if k.usage != nil {
				equal(t, "usage of stream.finished", f.Usage, *k.usage)
			}
		})
	}
}

func TestLongAnswerIsTruncated(t *testing.T) {
	c, h := newCell(t), &hooks{}
	c.worker("w1", talking(agent(fmt.Sprintf("yes | head -c %d", schemas.MaxPromptBytes+1)), h))
	cmd := message("k", "hello")
	wantFields(t, c.exec(cmd), schemas.Result{StdoutBytes: schemas.MaxPromptBytes + 1})
	c.streamFinish(cmd)
	if m := h.of(schemas.PhaseStreamFinish)[0].data.Message; !m.Truncated || len(m.Text) != schemas.MaxPromptBytes {
		t.Errorf("the text has %d bytes, truncated = %v; want %d and true", len(m.Text), m.Truncated, schemas.MaxPromptBytes)
	}
}

// The template's agent.output decides how the agent's output is parsed: the text before the JSON line hides it unless jsonl is set.
func TestMessageUsesTemplateOutput(t *testing.T) {
	const jsonLine = `{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"}]}}` + "\n"
	for output, want := range map[string]string{
		"": "loading\n" + jsonLine, schemas.OutputText: "loading\n" + jsonLine, schemas.OutputJSONLines: "loading\nHello\n",
	} {
		t.Run(output, func(t *testing.T) {
			c, h := newCell(t), &hooks{}
			template := agent("cat <<'E'\nloading\n" + jsonLine + "E")
			template.Agent.Output = output
			c.worker("w1", talking(template, h))
			cmd := message("k", "hello")
			c.exec(cmd)
			c.streamFinish(cmd)
			if got := h.of(schemas.PhaseStreamFinish)[0].data.Message.Text; got != want {
				t.Errorf("text = %q, want %q", got, want)
			}
		})
	}
}
