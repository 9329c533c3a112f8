package answer_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/answer"
	"github.com/sluice-dev/sluice/schemas"
)

// parsed is everything a Reader returns.
type parsed struct {
	Text     string
	Usage    schemas.Usage
	Reported bool
}

func text(s string) parsed { return parsed{Text: s} }

func textUsage(s string, in, out int64) parsed {
	return parsed{Text: s, Usage: schemas.Usage{InputTokens: in, OutputTokens: out}, Reported: true}
}

// read writes stdout to a Reader in pieces of at most size bytes.
func read(t *testing.T, format, stdout string, size int) parsed {
	t.Helper()
	var b bytes.Buffer
	r := answer.NewReader(&b, format)
	for p := []byte(stdout); len(p) > 0; {
		n := min(len(p), 1+rand.IntN(size))
		m, err := r.Write(p[:n])
		testkit.Must(t, err)
		if m != n {
			t.Fatalf("Write took %d bytes, want %d", m, n)
		}
		p = p[n:]
	}
	testkit.Must(t, r.Close())
	u, reported := r.Usage()
	return parsed{b.String(), u, reported}
}

func TestReaderDetectsFormat(t *testing.T) {
	for _, k := range []struct {
		name, stdout string
		want         parsed
	}{
		{"empty", "", text("")},
		{"text", "one\n\n two {x}\nthree", text("one\n\n two {x}\nthree")},
		{"text with usage", "hello\n{\"type\":\"result\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n", textUsage("hello\n", 3, 4)},
		{"text with other JSON", "hello\n{\"type\":\"other\"}\n{\"a\":1}\n{broken\n", text("hello\n{\"type\":\"other\"}\n{\"a\":1}\n{broken\n")},
		{"result alone", `{"type":"result","result":"done","usage":{"input_tokens":1,"output_tokens":2}}`, textUsage("done\n", 1, 2)},
		{"Claude Code", `{"type":"system","x":[1]}
{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"},{"type":"tool_use","text":"no"}]}}
{"type":"user","message":{"content":"a string"}}
{"type":"assistant","message":{"content":[{"type":"text","text":"there"}]}}
{"type":"result","result":"there","usage":{"input_tokens":5,"output_tokens":6,"cache":1}}
`, textUsage("Hello\nthere\n", 5, 6)},
		{"Codex", `{"type":"thread.started"}
{"type":"item.completed","item":{"type":"reasoning","text":"hm"}}
{"type":"item.completed","item":{"type":"agent_message","text":"Yes."}}
{"type":"turn.completed","usage":{"input_tokens":7,"output_tokens":8}}`, textUsage("Yes.\n", 7, 8)},
		{"two results", "{\"type\":\"result\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n{\"type\":\"result\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}\n", textUsage("", 2, 3)},
		{"usage out of range", "{\"type\":\"result\",\"usage\":{\"input_tokens\":-1,\"output_tokens\":2}}\n{\"type\":\"result\",\"usage\":{\"input_tokens\":1e300}}\n", text("")},
		{"usage of another shape", "{\"type\":\"result\",\"result\":\"x\",\"usage\":[]}\n", text("")},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			testkit.Equal(t, fmt.Sprintf("%s, in pieces of %d bytes", k.name, size), read(t, "", k.stdout, size), k.want)
		}
	}
}

// Each documented value of agent.output gives another message for the same output.
func TestReaderUsesTemplateOutput(t *testing.T) {
	const (
		said   = `{"type":"assistant","message":{"content":[{"type":"text","text":"Hi"}]}}` + "\n"
		result = `{"type":"result","result":"done","usage":{"input_tokens":1,"output_tokens":2}}` + "\n"
	)
	for _, k := range []struct {
		format, stdout string
		want           parsed
	}{
		{schemas.OutputText, said + result, textUsage(said, 1, 2)},
		{schemas.OutputJSONLines, said + result, textUsage("Hi\n", 1, 2)},
		{"", said + result, textUsage("Hi\n", 1, 2)},

		// A line of text first, such as a warning.
		{schemas.OutputText, "loading\n" + said + result, textUsage("loading\n"+said, 1, 2)},
		{schemas.OutputJSONLines, "loading\n" + said + result, textUsage("loading\nHi\n", 1, 2)},
		{"", "loading\n" + said + result, textUsage("loading\n"+said, 1, 2)},

		{schemas.OutputText, result, textUsage("", 1, 2)},
		{schemas.OutputJSONLines, result, textUsage("done\n", 1, 2)},
		{schemas.OutputJSONLines, "loading\n" + result, textUsage("loading\ndone\n", 1, 2)},
		{"", "loading\n" + result, textUsage("loading\n", 1, 2)},
	} {
		for _, size := range []int{1, 1 << 20} {
			testkit.Equal(t, fmt.Sprintf("output %q of %q", k.format, k.stdout), read(t, k.format, k.stdout, size), k.want)
		}
	}
	for _, format := range schemas.AgentOutputs() {
		if format != schemas.OutputText && format != schemas.OutputJSONLines {
			t.Errorf("agent.output %q has no case in this test", format)
		}
	}
}

func TestReaderBoundsLine(t *testing.T) {
	long := "{" + strings.Repeat("x", 4<<20+10) + "\nnext\n"
	if got := read(t, "", long, 1<<20); got.Text != long {
		t.Errorf("text is %d bytes, want %d", len(got.Text), len(long))
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestReaderCountsUsageAfterWriteError(t *testing.T) {
	r := answer.NewReader(failingWriter{}, "")
	if _, err := r.Write([]byte("text\n")); err == nil {
		t.Error("Write returned no error")
	}
	_, _ = r.Write([]byte(`{"type":"result","usage":{"input_tokens":1,"output_tokens":1}}`)) // the same error again
	if err := r.Close(); err == nil {
		t.Error("Close returned no error")
	}
	got, reported := r.Usage()
	testkit.Equal(t, "usage", got, schemas.Usage{InputTokens: 1, OutputTokens: 1})
	testkit.Equal(t, "reported", reported, true)
}

func FuzzReader(f *testing.F) {
	f.Add("hello\n{\"type\":\"result\",\"result\":\"x\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n")
	f.Add("{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}}")
	f.Fuzz(func(t *testing.T, stdout string) {
		for _, format := range append(schemas.AgentOutputs(), "") {
			whole := read(t, format, stdout, 1<<20)
			testkit.Equal(t, fmt.Sprintf("%q in small pieces", format), read(t, format, stdout, 3), whole)
			if whole.Usage.InputTokens < 0 || whole.Usage.OutputTokens < 0 {
				t.Errorf("usage is negative: %+v", whole.Usage)
			}
		}
	})
}
