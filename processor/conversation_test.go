package processor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// agent is a template whose agent is a shell script, with these arguments.
func agent(script string, args ...string) *schemas.Template {
	return &schemas.Template{Name: "agent", Agent: &schemas.TemplateAgent{Command: append([]string{"sh", "-c", script}, args...)}}
}

// held is an agent that answers once a file named after the prompt is there, and says what else it is to say before.
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

// read is what a file of thread t's workspace holds; nothing where it is not there.
func (c *cell) read(name string) string {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join(c.dir, "workspaces", schemas.DefaultTenant, "t", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	return string(b)
}

// streamFinish waits for the end of a message with all that follows it.
func (c *cell) streamFinish(cmd *schemas.Command) schemas.StreamFinish {
	c.t.Helper()
	var f schemas.StreamFinish
	c.must(c.awaitType(processOf(cmd), schemas.TypeStreamFinished).Decode(&f))
	return f
}

// sequence is what the hooks were called for, in order: phases and occasions, as the commands' keys.
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

// talking is a worker with a template and hooks that are kept.
func talking(t *schemas.Template, h *hooks) func(*Config) {
	return func(cfg *Config) {
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
		t.Errorf("%q", got)
	}
	if got := h.sequence(one, two, three); got != "message 1, stream_finish 1, message 2, stream_finish 2, message 3, stream_finish 3" {
		t.Error(got)
	}
	// Another thread's messages do not wait for this one's.
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

func TestAMessageThatWaitsIsEndedAtOnce(t *testing.T) {
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
			if r := c.end(second); r.Reason != schemas.ReasonKilled || r.ExitCode != 137 || r.Error != nil {
				t.Errorf("%+v", r)
			}
			c.wantRecords(processOf(two), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
			c.wantRecords(processOf(one), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
			c.wantRecords(processOf(three), schemas.TypeProcessAccepted)
			c.file("go-1")
			c.file("go-3")
			for _, call := range []*schemas.Result{c.end(first), c.end(third)} {
				if !call.Success {
					t.Errorf("%+v", call)
				}
			}
			c.streamFinish(three)
			if got := h.sequence(one, two, three); got != "message 1, stream_finish 1, message 3, stream_finish 3" {
				t.Error(got)
			}
		})
	}
}

func TestACancelledAgentEndsWithItsTree(t *testing.T) {
	c, h := newCell(t), &hooks{}
	w := c.worker("w1", talking(agent(`trap "" TERM; echo part; (sleep 0.5; echo late >late) & echo on; wait; sleep 300`), h))
	cmd := message("k", "hello")
	call := c.send(cmd)
	c.output(processOf(cmd), "on")
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{}}))
	if r := c.end(call); r.Reason != schemas.ReasonKilled || r.ExitCode != 137 || r.Stdout != "part\non\n" {
		t.Errorf("%+v", r)
	}
	if f := c.streamFinish(cmd); f.Reason != schemas.ReasonKilled || f.Process != processOf(cmd) || len(f.Failed) != 0 {
		t.Errorf("%+v", f)
	}
	calls := h.of(schemas.PhaseStreamFinish)
	if len(calls) != 1 {
		t.Fatalf("%+v", calls)
	}
	if m := calls[0].data.Message; m.Text != "part\non\n" || m.Reason != schemas.ReasonKilled || m.ExitCode != 137 || calls[0].data.Sandbox == nil {
		t.Errorf("%+v", m)
	}
}

func TestACriticalHookRefusesAMessage(t *testing.T) {
	c, h := newCell(t), &hooks{}
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseMessage && data.Message.Text == "bad" {
			return []string{"moderation"}, schemas.Errorf(schemas.CodePolicyDenied, "not in this house")
		}
		return nil, nil
	})
	c.worker("w1", talking(agent("cat >>ran"), h))
	cmd := message("k", "bad")
	r := c.exec(cmd)
	if r.Reason != schemas.ReasonRejected || r.Error == nil || r.Error.Code != schemas.CodePolicyDenied || !strings.Contains(r.Error.Message, "not in this house") {
		t.Errorf("%+v %v", r, r.Error)
	}
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessRejected)
	if f := c.streamFinish(cmd); f.Reason != schemas.ReasonRejected {
		t.Errorf("%+v", f)
	}
	if r := c.exec(message("k2", "good")); !r.Success {
		t.Errorf("%+v", r)
	}
	if got := c.read("ran"); got != "good" {
		t.Errorf("%q ran", got)
	}
}

func TestWhatFailsAfterAnAnswerIsTold(t *testing.T) {
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
		if r := c.exec(cmd); !r.Success || r.Stdout != "hello" {
			t.Errorf("%+v", r)
		}
		if f := c.streamFinish(cmd); fmt.Sprint(f.Failed) != "[push-workspace]" || f.Reason != schemas.ReasonExited {
			t.Errorf("%+v", f)
		}
	}
}

func TestAPromptIsAnArgumentOrInput(t *testing.T) {
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
			if r.Stdout != k.want {
				t.Errorf("%q, want %q", r.Stdout, k.want)
			}
			// The record shows the template's command; the prompt is the history's.
			if got := strings.Join(r.Args[2:], " "); got != strings.Join(k.args, " ") {
				t.Errorf("recorded: %q", got)
			}
			calls := h.of(schemas.PhaseMessage)
			if len(calls) != 1 {
				t.Fatalf("%+v", calls)
			}
			m := calls[0].data.Message
			if m.Text != prompt || m.Role != schemas.RoleUser || m.User != "ann" || m.Template != "agent" || m.Process != r.Process || m.Thread != "t" || m.Session == "" {
				t.Errorf("%+v", m)
			}
		})
	}
}

func TestAnAgentsTime(t *testing.T) {
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
			if r := c.exec(cmd); r.Reason != schemas.ReasonTimedOut || r.ExitCode != 124 {
				t.Errorf("%+v", r)
			}
			if f := c.streamFinish(cmd); f.Reason != schemas.ReasonTimedOut {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestATemplateWithoutAnAgentAnswersNothing(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", with(&schemas.Template{Name: "agent"}))
	for _, durable := range []bool{false, true} {
		cmd := message(fmt.Sprint(durable), "hello")
		_, answers := w.deliver(cmd, durable, 1)
		r := c.terminal(answers)
		if r.Error == nil || r.Error.Code != schemas.CodeInvalidArgument || r.Error.Details["path"] != "template" || !strings.Contains(r.Error.Message, "agent") {
			t.Errorf("%+v %v", r, r.Error)
		}
		if got := c.records(processOf(cmd)); len(got) != 0 {
			t.Errorf("recorded: %v", got)
		}
	}
}

func TestTheSameKeyIsAnsweredOnce(t *testing.T) {
	c, h := newCell(t), &hooks{}
	w := c.worker("w1", talking(held(":"), h))
	cmd := message("k", "1")
	first := c.send(cmd)
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	_, attached := w.deliver(cmd, false, 1)
	c.file("go-1")
	c.end(first)
	if r := c.terminal(attached); r.Stdout != "answer to 1\n" {
		t.Errorf("%+v", r)
	}
	c.streamFinish(cmd)
	if r := c.exec(cmd); r.Stdout != "answer to 1\n" {
		t.Errorf("a replay: %+v", r)
	}
	if _, answers := w.deliver(message("k", "2"), false, 1); c.terminal(answers).Error.Code != schemas.CodeConflict {
		t.Error("another prompt under the key was answered")
	}
	if got := h.sequence(cmd); got != "message k, stream_finish k" {
		t.Error(got)
	}
	if got := c.read("order"); got != "begin 1\nend 1\n" {
		t.Errorf("%q", got)
	}
}

func TestHooksHearTheAnswerAndItsTokens(t *testing.T) {
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
				t.Fatalf("%+v", calls)
			}
			data := calls[0].data
			m := data.Message
			if m.Text != k.text || m.Role != schemas.RoleAgent || m.User != "ann" || m.Template != "agent" || m.Truncated || m.ExitCode != r.ExitCode || m.Reason != r.Reason {
				t.Errorf("%+v", m)
			}
			if fmt.Sprint(data.Usage != nil, m.Usage != nil) != fmt.Sprint(k.usage != nil, k.usage != nil) {
				t.Fatalf("%+v %+v", data.Usage, m.Usage)
			}
			if k.usage != nil && (*data.Usage != *k.usage || f.Usage != *k.usage) {
				t.Errorf("%+v %+v", data.Usage, f)
			}
		})
	}
}

func TestALongAnswerIsCut(t *testing.T) {
	c, h := newCell(t), &hooks{}
	c.worker("w1", talking(agent(fmt.Sprintf("yes | head -c %d", schemas.MaxPromptBytes+1)), h))
	cmd := message("k", "hello")
	if r := c.exec(cmd); r.StdoutBytes != schemas.MaxPromptBytes+1 {
		t.Errorf("%+v", r)
	}
	c.streamFinish(cmd)
	if m := h.of(schemas.PhaseStreamFinish)[0].data.Message; !m.Truncated || len(m.Text) != schemas.MaxPromptBytes {
		t.Errorf("%d bytes, cut: %v", len(m.Text), m.Truncated)
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
