package schemas_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// with returns the smallest command with these members added, to the command and to its exec.
func with(members, exec string) string {
	join := func(a, b string) string {
		if b == "" {
			return a
		}
		return a + "," + b
	}
	return "{" + join(`"specversion":"1","op":"exec","thread":"t","key":"k"`, members) + `,"exec":{` + join(`"command":"true"`, exec) + "}}"
}

// without returns the smallest command with a member replaced.
func without(member, instead string) string {
	return strings.Replace(with("", ""), member, instead, 1)
}

type badCommand struct {
	name, body, path string
	// goOnly is set where a JSON Schema cannot express the rule, or its validator's JSON parser hides the fault.
	goOnly bool
}

// withMessage returns a command of op message.
func withMessage(message string) string {
	return `{"specversion":"1","op":"message","thread":"t","key":"k","message":` + message + `}`
}

func badCommands() []badCommand {
	long := func(n int) string { return strings.Repeat("x", n) }
	return []badCommand{
		{name: "not JSON", body: `{`},
		{name: "empty", body: ``},
		{name: "truncated", body: with("", "")[:40]},
		{name: "null", body: `null`},
		{name: "an array", body: `[]`},
		{name: "a string", body: `"exec"`},
		{name: "two values", body: with("", "") + with("", "")},
		{name: "data after the end", body: with("", "") + "x"},
		{name: "invalid UTF-8", body: with("", `"args":["`+"\xff"+`"]`), goOnly: true},
		{name: "half a surrogate pair", body: with("", `"args":["\ud83d"]`), goOnly: true},
		{name: "a low surrogate alone", body: with("", `"args":["\udc00x"]`), goOnly: true},
		{name: "two high surrogates", body: with("", `"args":["\ud83d\ud83d\udc00"]`), goOnly: true},

		{name: "unknown field", body: with(`"priority":1`, ""), path: "priority"},
		{name: "unknown field in exec", body: with("", `"tiemout_ms":1`), path: "exec.tiemout_ms"},
		{name: "field in another case", body: without(`"thread"`, `"Thread"`), path: "Thread"},
		{name: "second field in another case", body: with(`"KEY":"other"`, ""), path: "KEY"},
		{name: "field twice", body: with(`"thread":"t"`, ""), path: "thread", goOnly: true},
		{name: "field twice in exec", body: with("", `"command":"false"`), path: "exec.command", goOnly: true},
		{name: "environment name twice", body: with("", `"env":{"A":"1","A":"2"}`), path: "exec.env.A", goOnly: true},

		{name: "missing specversion", body: without(`"specversion":"1",`, ""), path: "specversion"},
		{name: "specversion 2", body: without(`"specversion":"1"`, `"specversion":"2"`), path: "specversion"},
		{name: "specversion as a number", body: without(`"specversion":"1"`, `"specversion":1`), path: "specversion"},
		{name: "missing op", body: without(`"op":"exec",`, ""), path: "op"},
		{name: "unknown op", body: without(`"op":"exec"`, `"op":"dance"`), path: "op"},
		{name: "op of 100,000", body: without(`"op":"exec"`, `"op":"`+long(100_000)+`"`), path: "op"},
		{name: "missing thread", body: without(`"thread":"t",`, ""), path: "thread"},
		{name: "thread with a dot", body: without(`"thread":"t"`, `"thread":"a.b"`), path: "thread"},
		{name: "thread with a wildcard", body: without(`"thread":"t"`, `"thread":">"`), path: "thread"},
		{name: "thread with a line feed", body: without(`"thread":"t"`, `"thread":"t\n"`), path: "thread"},
		{name: "thread of 129", body: without(`"thread":"t"`, `"thread":"`+long(129)+`"`), path: "thread"},
		{name: "missing key", body: without(`"key":"k",`, ""), path: "key"},
		{name: "key null", body: without(`"key":"k"`, `"key":null`), path: "key"},
		{name: "key of 257", body: without(`"key":"k"`, `"key":"`+long(257)+`"`), path: "key"},
		{name: "key of 256 bytes and more in fewer characters", body: without(`"key":"k"`, `"key":"`+strings.Repeat("é", 129)+`"`), path: "key", goOnly: true},
		{name: "provider with a slash", body: with(`"provider":"a/b"`, ""), path: "provider"},

		{name: "template with a slash", body: with(`"template":"a/b"`, ""), path: "template"},
		{name: "session with a dot", body: with(`"session":"a.b"`, ""), path: "session"},
		{name: "exec and message", body: with(`"message":{"prompt":"p"}`, ""), path: "message"},

		{name: "missing message", body: `{"specversion":"1","op":"message","thread":"t","key":"k"}`, path: "message"},
		{name: "message and exec", body: withMessage(`{"prompt":"p"},"exec":{"command":"true"}`), path: "exec"},
		{name: "missing prompt", body: withMessage(`{}`), path: "message.prompt"},
		{name: "empty prompt", body: withMessage(`{"prompt":""}`), path: "message.prompt"},
		{name: "prompt with NUL", body: withMessage(`{"prompt":"\u0000"}`), path: "message.prompt"},
		{name: "prompt over the limit", body: withMessage(`{"prompt":"` + long(schemas.MaxPromptBytes+1) + `"}`), path: "message.prompt"},
		{name: "prompt as a list", body: withMessage(`{"prompt":["p"]}`), path: "message.prompt"},
		{name: "user of 257", body: withMessage(`{"prompt":"p","user":"` + long(257) + `"}`), path: "message.user"},
		{name: "message with a model", body: withMessage(`{"prompt":"p","model":"m"}`), path: "message.model"},
		{name: "negative message timeout", body: withMessage(`{"prompt":"p","timeout_ms":-1}`), path: "message.timeout_ms"},
		{name: "negative message output", body: withMessage(`{"prompt":"p","output_limit":-1}`), path: "message.output_limit"},

		{name: "missing exec", body: `{"specversion":"1","op":"exec","thread":"t","key":"k"}`, path: "exec"},
		{name: "exec null", body: `{"specversion":"1","op":"exec","thread":"t","key":"k","exec":null}`, path: "exec"},
		{name: "exec a string", body: `{"specversion":"1","op":"exec","thread":"t","key":"k","exec":"true"}`, path: "exec"},
		{name: "missing command", body: without(`"command":"true"`, ""), path: "exec.command"},
		{name: "empty command", body: without(`"command":"true"`, `"command":""`), path: "exec.command"},
		{name: "command with NUL", body: without(`"command":"true"`, `"command":"a\u0000b"`), path: "exec.command"},
		{name: "command of 4097", body: without(`"command":"true"`, `"command":"`+long(4097)+`"`), path: "exec.command"},
		{name: "command as a list", body: without(`"command":"true"`, `"command":["true"]`), path: "exec.command"},
		{name: "args as a string", body: with("", `"args":"-c"`), path: "exec.args"},
		{name: "args null", body: with("", `"args":null`), path: "exec.args"},
		{name: "null in args", body: with("", `"args":["a",null]`), path: "exec.args[1]"},
		{name: "number in args", body: with("", `"args":["a","b",3]`), path: "exec.args[2]"},
		{name: "deep args", body: with("", `"args":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)), path: "exec.args[0]", goOnly: true},
		{name: "NUL in args", body: with("", `"args":["a","b","c","\u0000"]`), path: "exec.args[3]"},
		{name: "env as a list", body: with("", `"env":["A=1"]`), path: "exec.env"},
		{name: "env with a number", body: with("", `"env":{"A":1}`), path: "exec.env.A"},
		{name: "empty env name", body: with("", `"env":{"":"x"}`), path: "exec.env"},
		{name: "env name with =", body: with("", `"env":{"A=B":"x"}`), path: "exec.env"},
		{name: "reserved env name", body: with("", `"env":{"SLUICE_PROCESS":"x"}`), path: "exec.env.SLUICE_PROCESS"},
		{name: "env value with NUL", body: with("", `"env":{"A":"\u0000"}`), path: "exec.env.A"},
		{name: "cwd with NUL", body: with("", `"cwd":"\u0000"`), path: "exec.cwd"},
		{name: "cwd of 4097", body: with("", `"cwd":"`+long(4097)+`"`), path: "exec.cwd"},
		{name: "negative timeout", body: with("", `"timeout_ms":-1`), path: "exec.timeout_ms"},
		{name: "timeout over 30 days", body: with("", fmt.Sprintf(`"timeout_ms":%d`, schemas.MaxTimeoutMS+1)), path: "exec.timeout_ms"},
		{name: "fraction of a timeout", body: with("", `"timeout_ms":1.5`), path: "exec.timeout_ms"},
		{name: "timeout as text", body: with("", `"timeout_ms":"1s"`), path: "exec.timeout_ms"},
		{name: "timeout over int64", body: with("", `"timeout_ms":99999999999999999999`), path: "exec.timeout_ms"},
		{name: "timeout of 300 digits", body: with("", `"timeout_ms":`+strings.Repeat("1", 300)), path: "exec.timeout_ms"},
		{name: "negative grace", body: with("", `"grace_ms":-1`), path: "exec.grace_ms"},
		{name: "stdin not base64", body: with("", `"stdin":"a?b"`), path: "exec.stdin"},
		{name: "stdin without padding", body: with("", `"stdin":"YQ"`), path: "exec.stdin"},
		{name: "stdin as bytes", body: with("", `"stdin":[1,2]`), path: "exec.stdin"},
		{name: "stdin_open as text", body: with("", `"stdin_open":"yes"`), path: "exec.stdin_open"},
		{name: "negative output limit", body: with("", `"output_limit":-1`), path: "exec.output_limit"},
		{name: "output limit over 64 MiB", body: with("", fmt.Sprintf(`"output_limit":%d`, schemas.MaxOutputLimit+1)), path: "exec.output_limit"},
		{name: "unknown retry", body: with("", `"retry":"always"`), path: "exec.retry"},
	}
}

func TestDecodeCommandRefusesInvalid(t *testing.T) {
	for _, tt := range badCommands() {
		t.Run(tt.name, func(t *testing.T) {
			_, err := schemas.DecodeCommand([]byte(tt.body))
			checkRefusal(t, err, tt.path)
			if err := bySchema(t, "command", []byte(tt.body)); err == nil && !tt.goOnly {
				t.Error("the JSON Schema accepts it")
			}
		})
	}
}

// checkRefusal checks that err is an invalid_argument error for the field at path, small enough for an event.
func checkRefusal(t *testing.T, err error, path string) {
	t.Helper()
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	e := schemas.AsError(err)
	if got := e.Details["path"]; got != path {
		t.Errorf("details.path = %q, want %q (error: %v)", got, path, err)
	}
	if !strings.HasPrefix(e.Message, path) {
		t.Errorf("message = %q, want it to begin with %q", e.Message, path)
	}
	if body := mustJSON(t, e); len(body) > maxRefusal {
		t.Errorf("the encoded error is %d bytes, want at most %d", len(body), maxRefusal)
	}
}

// maxRefusal is the largest encoded error, in bytes: it must fit into an event for every input.
const maxRefusal = 8 << 10

func TestCommandSizeLimit(t *testing.T) {
	body := func(n int) []byte { return []byte(with("", `"stdin":"`+strings.Repeat("A", n)+`"`)) }
	room := (schemas.MaxCommandBytes - len(body(0))) / 4 * 4
	_, err := schemas.DecodeCommand(body(room))
	testkit.Must(t, err)
	_, err = schemas.DecodeCommand(body(room + 8))
	testkit.WantCode(t, err, schemas.CodeTooLarge)

	// Escaped for HTML, half the limit would be too large.
	half := strings.Repeat("<", schemas.MaxCommandBytes/2)
	c := &schemas.Command{SpecVersion: "1", Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{Command: "echo", Args: []string{half}}}
	_, err = schemas.EncodeCommand(c)
	testkit.Must(t, err)
	c.Exec.Args = append(c.Exec.Args, half)
	_, err = schemas.EncodeCommand(c)
	testkit.WantCode(t, err, schemas.CodeTooLarge)
}

func TestDecodeCommandAcceptsLimits(t *testing.T) {
	for _, exec := range []string{
		`"timeout_ms":0`, fmt.Sprintf(`"timeout_ms":%d`, schemas.MaxTimeoutMS), fmt.Sprintf(`"grace_ms":%d`, schemas.MaxTimeoutMS),
		`"output_limit":0`, fmt.Sprintf(`"output_limit":%d`, schemas.MaxOutputLimit), `"retry":""`, `"retry":"never"`, `"retry":"safe"`,
		`"env":{}`, `"args":[]`, `"args":[""]`, `"cwd":""`, `"stdin":""`, `"args":["\ud83d\ude00","\\ud83d"]`, `"env":{"A B":"","é":"\n"}`,
	} {
		body := []byte(with("", exec))
		c, err := schemas.DecodeCommand(body)
		if err != nil {
			t.Errorf("%s: %v", exec, err)
			continue
		}
		if err := bySchema(t, "command", body); err != nil {
			t.Errorf("%s: the JSON Schema refuses it: %v", exec, err)
		}
		testkit.Equal(t, exec+": specversion", c.SpecVersion, "1")
	}
	testkit.Equal(t, "default output limit", (&schemas.Exec{}).Limit(), schemas.DefaultOutputLimit)
}

func TestEncodeCommand(t *testing.T) {
	c, err := schemas.DecodeCommand(examples(t)["command.full"])
	testkit.Must(t, err)
	body, err := schemas.EncodeCommand(c)
	testkit.Must(t, err)
	if bytes.HasSuffix(body, []byte("\n")) {
		t.Error("the encoded command ends with a line feed")
	}
	decoded, err := schemas.DecodeCommand(body)
	testkit.Must(t, err)
	testkit.Equal(t, "command after encoding and decoding", decoded, c)
	c.Thread = "a.b"
	_, err = schemas.EncodeCommand(c)
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestFingerprint(t *testing.T) {
	command := func() *schemas.Command {
		limit := int64(1)
		return &schemas.Command{SpecVersion: "1", Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{
			Command: "c", Args: []string{"a"}, Env: map[string]string{"A": "1", "B": "2"}, OutputLimit: &limit,
		}}
	}
	original := command().Fingerprint()
	testkit.Equal(t, "fingerprint of an equal command", command().Fingerprint(), original)
	testkit.Equal(t, "length", len(original), 64)
	for name, change := range map[string]func(*schemas.Command){
		"thread": func(c *schemas.Command) { c.Thread = "u" }, "key": func(c *schemas.Command) { c.Key = "l" },
		"command": func(c *schemas.Command) { c.Exec.Command = "d" }, "args": func(c *schemas.Command) { c.Exec.Args = nil },
		"env": func(c *schemas.Command) { c.Exec.Env["A"] = "2" }, "stdin": func(c *schemas.Command) { c.Exec.Stdin = []byte("x") },
		"timeout": func(c *schemas.Command) { c.Exec.TimeoutMS = 1 }, "limit": func(c *schemas.Command) { *c.Exec.OutputLimit = 0 },
	} {
		c := command()
		change(c)
		if c.Fingerprint() == original {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}
