package processor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/events"
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

// lineUp sends a message, and waits until it is accepted: a worker that is busy for seconds takes it from the queue, where later ones overtake it.
func (c *cell) lineUp(cmd *schemas.Command) *events.Call {
	c.t.Helper()
	call := c.send(cmd)
	c.awaitType(processOf(cmd), schemas.TypeProcessAccepted)
	return call
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
func (h *hooks) set(do hookFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.do = do
}

// newTalk starts a cell with the worker w1, a template and hooks.
func newTalk(t testing.TB, recipe *schemas.Template, edit ...func(*processor.Config)) (*cell, *rig, *hooks) {
	t.Helper()
	h := &hooks{}
	c, w := newRig(t, append(edit, talking(recipe, h))...)
	return c, w, h
}

// talking configures a worker with a template and these hooks.
func talking(t *schemas.Template, h *hooks) func(*processor.Config) {
	return func(cfg *processor.Config) {
		with(t)(cfg)
		cfg.Hooks = h
	}
}

func TestMessagesOfAThreadAreAnsweredInOrder(t *testing.T) {
	c, _, h := newTalk(t, held(":"))
	one, two, three := message("1", "1"), message("2", "2"), message("3", "3")
	first := c.start(one)
	second, third := c.lineUp(two), c.lineUp(three)
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
	equal(t, "order", c.read("order"), "begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n")
	equal(t, "hooks", h.sequence(one, two, three), "message 1, stream_finish 1, message 2, stream_finish 2, message 3, stream_finish 3")
	// Messages of another thread do not wait for this one's.
	slow, other := message("slow", "slow"), message("other", "1")
	other.Thread = "t2"
	call := c.start(slow)
	elsewhere := c.start(other)
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
			c, w, h := newTalk(t, held(":"))
			one, two, three := message("1", "1"), message("2", "2"), message("3", "3")
			first := c.start(one)
			second, third := c.lineUp(two), c.lineUp(three)
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
			equal(t, "hooks", h.sequence(one, two, three), "message 1, stream_finish 1, message 3, stream_finish 3")
		})
	}
}

func TestKillEndsTheWholeTreeOfAnAgent(t *testing.T) {
	c, w, h := newTalk(t, agent(`trap "" TERM; echo part; (sleep 0.5; echo late >late) & echo on; wait; sleep 300`))
	cmd := message("k", "hello")
	call := c.start(cmd, "on")
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{}}))
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 137, Stdout: "part\non\n"})
	f := c.streamFinish(cmd)
	wantFields(t, f, schemas.StreamFinish{Reason: schemas.ReasonKilled, Process: processOf(cmd)})
	equal(t, "failed hooks", len(f.Failed), 0)
	finish := h.once(t, schemas.PhaseStreamFinish)
	wantFields(t, finish.Message, schemas.Message{Text: "part\non\n", Reason: schemas.ReasonKilled, ExitCode: 137})
	equal(t, "stream_finish got a sandbox", finish.Sandbox != nil, true)
}

func TestCriticalHookRejectsAMessage(t *testing.T) {
	c, _, h := newTalk(t, agent("cat >>ran"))
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ hookExec) ([]string, error) {
		if data.Phase == schemas.PhaseMessage && data.Message.Text == "bad" {
			return []string{"moderation"}, schemas.Errorf(schemas.CodePolicyDenied, "not allowed here")
		}
		return nil, nil
	})
	cmd := message("k", "bad")
	r := c.exec(cmd)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodePolicyDenied)})
	wantMessage(t, r.Error, "not allowed here")
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessRejected)
	wantFields(t, c.streamFinish(cmd), schemas.StreamFinish{Reason: schemas.ReasonRejected})
	wantFields(t, c.exec(message("k2", "good")), schemas.Result{Success: true})
	equal(t, "prompts that ran", c.read("ran"), "good")
}

func TestFailedHooksAfterAnAnswerAreReported(t *testing.T) {
	c, _, h := newTalk(t, agent("cat"))
	h.set(failIn(schemas.PhaseStreamFinish, "push-workspace", schemas.Errorf(schemas.CodeUnavailable, "the store is away")))
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
			recipe := agent(script, k.args...)
			recipe.Agent.Stdin = k.stdin
			c, _, h := newTalk(t, recipe)
			cmd := message("k", prompt)
			r := c.exec(cmd)
			wantFields(t, r, schemas.Result{Stdout: k.want})
			// The record has the template's command; the prompt is in the message history.
			testkit.Equal(t, "recorded arguments", r.Args[2:], k.args)
			m := h.once(t, schemas.PhaseMessage).Message
			wantFields(t, m, schemas.Message{Text: prompt, Role: schemas.RoleUser, User: "ann", Template: "agent", Process: r.Process, Thread: "t"})
			equal(t, "the message has a session", m.Session != "", true)
		})
	}
}

func TestAgentTimeout(t *testing.T) {
	for _, k := range []struct {
		name              string
		template, request int64
	}{{"the template's", 200, 0}, {"the message's", 3_600_000, 200}} {
		t.Run(k.name, func(t *testing.T) {
			recipe := agent("echo on; sleep 300")
			recipe.Agent.TimeoutMS = k.template
			c, _, _ := newTalk(t, recipe)
			cmd := message("k", "hello")
			cmd.Message.TimeoutMS = k.request
			wantFields(t, c.exec(cmd), schemas.Result{Reason: schemas.ReasonTimedOut, ExitCode: 124})
			wantFields(t, c.streamFinish(cmd), schemas.StreamFinish{Reason: schemas.ReasonTimedOut})
		})
	}
}

func TestTemplateWithoutAnAgentRefusesMessages(t *testing.T) {
	c, w := newRig(t, with(&schemas.Template{Name: "agent"}))
	for _, durable := range []bool{false, true} {
		cmd := message(fmt.Sprint(durable), "hello")
		_, answers := w.deliver(cmd, durable, 1)
		r := c.terminal(answers)
		wantFields(t, r, failed(schemas.CodeInvalidArgument))
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
	c, w, h := newTalk(t, held(":"))
	cmd := message("k", "1")
	first := c.start(cmd)
	_, attached := w.deliver(cmd, false, 1)
	c.file("go-1")
	c.end(first)
	wantFields(t, c.terminal(attached), schemas.Result{Stdout: "answer to 1\n"})
	c.streamFinish(cmd)
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: "answer to 1\n"})
	w.wantAnswer(message("k", "2"), false, 1, schemas.ActionDead, failed(schemas.CodeConflict))
	equal(t, "hooks", h.sequence(cmd), "message k, stream_finish k")
	equal(t, "order", c.read("order"), "begin 1\nend 1\n")
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
			c, _, h := newTalk(t, agent(k.script))
			cmd := message("k", "hello")
			r := c.exec(cmd)
			f := c.streamFinish(cmd)
			data := h.once(t, schemas.PhaseStreamFinish)
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
	c, _, h := newTalk(t, agent(fmt.Sprintf("yes | head -c %d", schemas.MaxPromptBytes+1)))
	cmd := message("k", "hello")
	wantFields(t, c.exec(cmd), schemas.Result{StdoutBytes: schemas.MaxPromptBytes + 1})
	c.streamFinish(cmd)
	m := h.once(t, schemas.PhaseStreamFinish).Message
	equal(t, "truncated", m.Truncated, true)
	equal(t, "bytes of the text", len(m.Text), schemas.MaxPromptBytes)
}

// The template's agent.output decides how the agent's output is parsed: the text before the JSON line hides it unless jsonl is set.
func TestMessageUsesTemplateOutput(t *testing.T) {
	const jsonLine = `{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"}]}}` + "\n"
	for output, want := range map[string]string{
		"": "loading\n" + jsonLine, schemas.OutputText: "loading\n" + jsonLine, schemas.OutputJSONLines: "loading\nHello\n",
	} {
		t.Run(output, func(t *testing.T) {
			template := agent("cat <<'E'\nloading\n" + jsonLine + "E")
			template.Agent.Output = output
			c, _, h := newTalk(t, template)
			cmd := message("k", "hello")
			c.exec(cmd)
			c.streamFinish(cmd)
			equal(t, "text", h.once(t, schemas.PhaseStreamFinish).Message.Text, want)
		})
	}
}
