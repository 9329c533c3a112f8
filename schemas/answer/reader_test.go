package answer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// read gives output to a reader in pieces of at most size bytes.
func read(t *testing.T, output string, size int) (text string, u schemas.Usage, found bool) {
	t.Helper()
	var b bytes.Buffer
	r := Reader{To: &b}
	for p := []byte(output); len(p) > 0; {
		n := min(len(p), 1+rand.IntN(size))
		if m, err := r.Write(p[:n]); m != n || err != nil {
			t.Fatal(m, err)
		}
		p = p[n:]
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	u, found = r.Usage()
	return b.String(), u, found
}

func TestReader(t *testing.T) {
	for _, k := range []struct {
		name, output, text string
		usage              *schemas.Usage
	}{
		{"nothing", "", "", nil},
		{"text", "one\n\n two {x}\nthree", "one\n\n two {x}\nthree", nil},
		{"text with its usage", "hello\n{\"type\":\"result\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n", "hello\n", &schemas.Usage{InputTokens: 3, OutputTokens: 4}},
		{"text with other JSON", "hello\n{\"type\":\"other\"}\n{\"a\":1}\n{broken\n", "hello\n{\"type\":\"other\"}\n{\"a\":1}\n{broken\n", nil},
		{"only a result", `{"type":"result","result":"done","usage":{"input_tokens":1,"output_tokens":2}}`, "done\n", &schemas.Usage{InputTokens: 1, OutputTokens: 2}},
		{"JSON lines", `{"type":"system","x":[1]}
{"type":"assistant","message":{"content":[{"type":"text","text":"Hello"},{"type":"tool_use","text":"no"}]}}
{"type":"user","message":{"content":"a string"}}
{"type":"assistant","message":{"content":[{"type":"text","text":"there"}]}}
{"type":"result","result":"there","usage":{"input_tokens":5,"output_tokens":6,"cache":1}}
`, "Hello\nthere\n", &schemas.Usage{InputTokens: 5, OutputTokens: 6}},
		{"another's JSON lines", `{"type":"thread.started"}
{"type":"item.completed","item":{"type":"reasoning","text":"hm"}}
{"type":"item.completed","item":{"type":"agent_message","text":"Yes."}}
{"type":"turn.completed","usage":{"input_tokens":7,"output_tokens":8}}`, "Yes.\n", &schemas.Usage{InputTokens: 7, OutputTokens: 8}},
		{"two results", "{\"type\":\"result\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n{\"type\":\"result\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}\n", "", &schemas.Usage{InputTokens: 2, OutputTokens: 3}},
		{"what nobody can use", "{\"type\":\"result\",\"usage\":{\"input_tokens\":-1,\"output_tokens\":2}}\n{\"type\":\"result\",\"usage\":{\"input_tokens\":1e300}}\n", "", nil},
		{"usage of another shape", "{\"type\":\"result\",\"result\":\"x\",\"usage\":[]}\n", "", nil},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			text, u, found := read(t, k.output, size)
			if text != k.text || found != (k.usage != nil) || found && u != *k.usage {
				t.Errorf("%s by %d: %q %+v %v", k.name, size, text, u, found)
			}
		}
	}
}

func TestReaderBoundsALine(t *testing.T) {
	long := "{" + strings.Repeat("x", maxLine+10) + "\nnext\n"
	text, _, _ := read(t, long, 1<<20)
	if text != long {
		t.Errorf("%d bytes of %d", len(text), len(long))
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestReaderGoesOnWithoutItsReader(t *testing.T) {
	r := Reader{To: broken{}}
	if _, err := r.Write([]byte("text\n")); err == nil {
		t.Error("the error is lost")
	}
	_, _ = r.Write([]byte(`{"type":"result","usage":{"input_tokens":1,"output_tokens":1}}`))
	if err := r.Close(); err == nil {
		t.Error("the error is lost")
	}
	if u, ok := r.Usage(); !ok || u.InputTokens != 1 {
		t.Error(u, ok)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("hello\n{\"type\":\"result\",\"result\":\"x\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n")
	f.Add("{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}}")
	f.Fuzz(func(t *testing.T, output string) {
		whole, u, found := read(t, output, 1<<20)
		text, v, again := read(t, output, 3)
		if text != whole || u != v || found != again {
			t.Errorf("in pieces %q %v %v, else %q %v %v", text, v, again, whole, u, found)
		}
		if u.InputTokens < 0 || u.OutputTokens < 0 {
			t.Errorf("%+v", u)
		}
	})
}
