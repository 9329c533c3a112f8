package agent_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/processor/agent"
	"github.com/sluice-dev/sluice/schemas"
)

func line(result string, in, out any) string {
	text, err := json.Marshal(result)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"type":"result","result":%s,"usage":{"input_tokens":%v,"output_tokens":%v}}`, text, in, out)
}

// reading reads a text in pieces of this size.
func reading(text string, piece int) *agent.Output {
	var o agent.Output
	for len(text) > 0 {
		n := min(piece, len(text))
		_, _ = o.Write([]byte(text[:n])) // never fails
		text = text[n:]
	}
	o.Close()
	return &o
}

func TestOutput(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for name, c := range map[string]struct {
		text    string
		usage   schemas.Usage
		used    bool
		answer  string
		replied bool
	}{
		"nothing":              {},
		"text":                 {text: "hello\nresult\n"},
		"one":                  {line("hi", 3, 4), schemas.Usage{InputTokens: 3, OutputTokens: 4}, true, "hi", true},
		"among others":         {`{"type":"text","result":"no"}` + "\r\n  " + line("hi", 3, 4) + "\r\n[1]\nbye", schemas.Usage{InputTokens: 3, OutputTokens: 4}, true, "hi", true},
		"two turns":            {line("a", 1, 2) + "\n" + line("b", 10, 20) + "\n", schemas.Usage{InputTokens: 11, OutputTokens: 22}, true, "b", true},
		"no usage":             {text: `{"type":"result","result":"x"}`, answer: "x", replied: true},
		"no result":            {text: `{"type":"result","usage":{"input_tokens":1}}`, usage: schemas.Usage{InputTokens: 1}, used: true},
		"null":                 {text: `{"type":"result","result":null,"usage":null}`},
		"a result of a kind":   {text: `{"type":"result","result":{"a":1}}`},
		"negative":             {text: line("x", -1, 2), answer: "x", replied: true},
		"huge":                 {text: line("x", 1e30, 2), answer: "x", replied: true},
		"over what is counted": {text: line("x", int64(agent.MaxTokens)+1, 2), answer: "x", replied: true},
		"sum over all": {
			line("x", int64(agent.MaxTokens), 2) + "\n" + line("y", int64(agent.MaxTokens), 2),
			schemas.Usage{InputTokens: agent.MaxTokens, OutputTokens: 4}, true, "y", true,
		},
		"a fraction": {text: line("x", 1.5, 2), answer: "x", replied: true},
		"a string":   {text: line("x", `"no"`, 2)},
		"torn":       {text: line("x", 1, 2)[:40]},
		"deep":       {text: `{"type":"result","x":` + deep + `,"result":"x"}`},
		"too long":   {line("lost", 9, 9)[:20] + strings.Repeat(" ", agent.MaxLine) + "\n" + line("next", 1, 1), schemas.Usage{InputTokens: 1, OutputTokens: 1}, true, "next", true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, piece := range []int{1, 7, 4096, 1 << 30} {
				if piece < 4096 && len(c.text) > 1<<20 {
					continue // a minute each
				}
				o := reading(c.text, piece)
				usage, used := o.Usage()
				answer, _, replied := o.Answer()
				if usage != c.usage || used != c.used || answer != c.answer || replied != c.replied {
					t.Errorf("in pieces of %d: %+v %t %q %t", piece, usage, used, answer, replied)
				}
			}
		})
	}
}

func TestAnswersAreCut(t *testing.T) {
	o := reading(line(strings.Repeat("ü", schemas.MaxPromptBytes/2+1), 1, 1), 1<<16)
	text, cut, ok := o.Answer()
	if !ok || !cut || len(text) > schemas.MaxPromptBytes || !utf8.ValidString(text) {
		t.Errorf("%d bytes, cut %t", len(text), cut)
	}
	o = reading(line(strings.Repeat("\x00", schemas.MaxPromptBytes), 1, 1), 1<<16)
	if text, cut, ok := o.Answer(); !ok || cut || len(text) != schemas.MaxPromptBytes {
		t.Errorf("%d bytes, cut %t, %t: the longest answer, with every byte escaped", len(text), cut, ok)
	}
}

// FuzzOutput sees to it that no output costs more than its bounds, and that the pieces it comes in make no difference.
func FuzzOutput(f *testing.F) {
	f.Add([]byte(line("hi", 3, 4)+"\nx"), 3)
	f.Add([]byte(`{"type":"result","result":"\ud800","usage":{"input_tokens":-0}}`), 1)
	f.Add([]byte("{\n{\"result\"\n   \n"), 2)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		whole, parts := reading(string(text), 1<<30), reading(string(text), max(1, piece%64))
		for _, o := range []*agent.Output{whole, parts} {
			u, used := o.Usage()
			if u.InputTokens < 0 || u.OutputTokens < 0 || u.InputTokens > agent.MaxTokens || u.OutputTokens > agent.MaxTokens || (!used && u != schemas.Usage{}) {
				t.Fatalf("%+v", u)
			}
		}
		wu, _ := whole.Usage()
		pu, _ := parts.Usage()
		wa, _, _ := whole.Answer()
		pa, _, _ := parts.Answer()
		if wu != pu || wa != pa {
			t.Fatalf("whole %+v %q, in parts %+v %q", wu, wa, pu, pa)
		}
	})
}
