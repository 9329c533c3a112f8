package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/schemas"
)

// with puts members into the smallest command; exec's are those of exec.
func with(members, exec string) string {
	join := func(a, b string) string {
		if b == "" {
			return a
		}
		return a + "," + b
	}
	return "{" + join(`"specversion":"1","op":"exec","thread":"t","key":"k"`, members) + `,"exec":{` + join(`"command":"true"`, exec) + "}}"
}

// without is the smallest command with one member replaced by others.
func without(member, instead string) string {
	return strings.Replace(with("", ""), member, instead, 1)
}

type badCommand struct {
	name, body, path string
	// goAlone marks what no JSON Schema can express, or a validator's JSON parser does not show to it.
	goAlone bool
}

// withMessage is a command of op message with this for a message.
func withMessage(message string) string {
	return `{"specversion":"1","op":"message","thread":"t","key":"k","message":` + message + `}`
}

func badCommands() []badCommand {
	long := func(n int) string { return strings.Repeat("x", n) }
	return []badCommand{
		{name: "not JSON", body: `{`},
		{name: "empty", body: ``},
		{name: "cut off", body: with("", "")[:40]},
		{name: "null", body: `null`},
		{name: "an array", body: `[]`},
		{name: "a string", body: `"exec"`},
		{name: "two values", body: with("", "") + with("", "")},
		{name: "rubbish behind", body: with("", "") + "x"},
		{name: "invalid UTF-8", body: with("", `"args":["`+"\xff"+`"]`), goAlone: true},
		{name: "half a surrogate pair", body: with("", `"args":["\ud83d"]`), goAlone: true},
		{name: "a low surrogate alone", body: with("", `"args":["\udc00x"]`), goAlone: true},
		{name: "two high surrogates", body: with("", `"args":["\ud83d\ud83d\udc00"]`), goAlone: true},

		{name: "unknown field", body: with(`"priority":1`, ""), path: "priority"},
		{name: "unknown field in exec", body: with("", `"tiemout_ms":1`), path: "exec.tiemout_ms"},
		{name: "field in another case", body: without(`"thread"`, `"Thread"`), path: "Thread"},
		{name: "second field in another case", body: with(`"KEY":"other"`, ""), path: "KEY"},
		{name: "field twice", body: with(`"thread":"t"`, ""), path: "thread", goAlone: true},
		{name: "field twice in exec", body: with("", `"command":"false"`), path: "exec.command", goAlone: true},
		{name: "environment name twice", body: with("", `"env":{"A":"1","A":"2"}`), path: "exec.env.A", goAlone: true},

		{name: "no specversion", body: without(`"specversion":"1",`, ""), path: "specversion"},
		{name: "specversion 2", body: without(`"specversion":"1"`, `"specversion":"2"`), path: "specversion"},
		{name: "specversion as a number", body: without(`"specversion":"1"`, `"specversion":1`), path: "specversion"},
		{name: "no op", body: without(`"op":"exec",`, ""), path: "op"},
		{name: "unknown op", body: without(`"op":"exec"`, `"op":"dance"`), path: "op"},
		{name: "endless op", body: without(`"op":"exec"`, `"op":"`+long(100_000)+`"`), path: "op"},
		{name: "no thread", body: without(`"thread":"t",`, ""), path: "thread"},
		{name: "thread with a dot", body: without(`"thread":"t"`, `"thread":"a.b"`), path: "thread"},
		{name: "thread with a wildcard", body: without(`"thread":"t"`, `"thread":">"`), path: "thread"},
		{name: "thread with a line feed", body: without(`"thread":"t"`, `"thread":"t\n"`), path: "thread"},
		{name: "thread of 129", body: without(`"thread":"t"`, `"thread":"`+long(129)+`"`), path: "thread"},
		{name: "no key", body: without(`"key":"k",`, ""), path: "key"},
		{name: "key null", body: without(`"key":"k"`, `"key":null`), path: "key"},
		{name: "key of 257", body: without(`"key":"k"`, `"key":"`+long(257)+`"`), path: "key"},
		{name: "key of 256 bytes and more in fewer characters", body: without(`"key":"k"`, `"key":"`+strings.Repeat("é", 129)+`"`), path: "key", goAlone: true},
		{name: "provider with a slash", body: with(`"provider":"a/b"`, ""), path: "provider"},

		{name: "template with a slash", body: with(`"template":"a/b"`, ""), path: "template"},
		{name: "session with a dot", body: with(`"session":"a.b"`, ""), path: "session"},
		{name: "exec and message", body: with(`"message":{"prompt":"p"}`, ""), path: "message"},

		{name: "no message", body: `{"specversion":"1","op":"message","thread":"t","key":"k"}`, path: "message"},
		{name: "message and exec", body: withMessage(`{"prompt":"p"},"exec":{"command":"true"}`), path: "exec"},
		{name: "no prompt", body: withMessage(`{}`), path: "message.prompt"},
		{name: "empty prompt", body: withMessage(`{"prompt":""}`), path: "message.prompt"},
		{name: "prompt with NUL", body: withMessage(`{"prompt":"\u0000"}`), path: "message.prompt"},
		{name: "endless prompt", body: withMessage(`{"prompt":"` + long(schemas.MaxPromptBytes+1) + `"}`), path: "message.prompt"},
		{name: "prompt as a list", body: withMessage(`{"prompt":["p"]}`), path: "message.prompt"},
		{name: "endless user", body: withMessage(`{"prompt":"p","user":"` + long(257) + `"}`), path: "message.user"},
		{name: "message with a model", body: withMessage(`{"prompt":"p","model":"m"}`), path: "message.model"},
		{name: "negative message timeout", body: withMessage(`{"prompt":"p","timeout_ms":-1}`), path: "message.timeout_ms"},
		{name: "negative message output", body: withMessage(`{"prompt":"p","output_limit":-1}`), path: "message.output_limit"},

		{name: "no exec", body: `{"specversion":"1","op":"exec","thread":"t","key":"k"}`, path: "exec"},
		{name: "exec null", body: `{"specversion":"1","op":"exec","thread":"t","key":"k","exec":null}`, path: "exec"},
		{name: "exec a string", body: `{"specversion":"1","op":"exec","thread":"t","key":"k","exec":"true"}`, path: "exec"},
		{name: "no command", body: without(`"command":"true"`, ""), path: "exec.command"},
		{name: "empty command", body: without(`"command":"true"`, `"command":""`), path: "exec.command"},
		{name: "command with NUL", body: without(`"command":"true"`, `"command":"a\u0000b"`), path: "exec.command"},
		{name: "command of 4097", body: without(`"command":"true"`, `"command":"`+long(4097)+`"`), path: "exec.command"},
		{name: "command as a list", body: without(`"command":"true"`, `"command":["true"]`), path: "exec.command"},
		{name: "args as a string", body: with("", `"args":"-c"`), path: "exec.args"},
		{name: "args null", body: with("", `"args":null`), path: "exec.args"},
		{name: "null in args", body: with("", `"args":["a",null]`), path: "exec.args[1]"},
		{name: "number in args", body: with("", `"args":["a","b",3]`), path: "exec.args[2]"},
		{name: "deep args", body: with("", `"args":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)), path: "exec.args[0]", goAlone: true},
		{name: "NUL in args", body: with("", `"args":["a","b","c","\u0000"]`), path: "exec.args[3]"},
		{name: "env as a list", body: with("", `"env":["A=1"]`), path: "exec.env"},
		{name: "env with a number", body: with("", `"env":{"A":1}`), path: "exec.env.A"},
		{name: "empty env name", body: with("", `"env":{"":"x"}`), path: "exec.env"},
		{name: "env name with =", body: with("", `"env":{"A=B":"x"}`), path: "exec.env"},
		{name: "env name of Sluice", body: with("", `"env":{"SLUICE_PROCESS":"x"}`), path: "exec.env.SLUICE_PROCESS"},
		{name: "env value with NUL", body: with("", `"env":{"A":"\u0000"}`), path: "exec.env.A"},
		{name: "cwd with NUL", body: with("", `"cwd":"\u0000"`), path: "exec.cwd"},
		{name: "cwd of 4097", body: with("", `"cwd":"`+long(4097)+`"`), path: "exec.cwd"},
		{name: "negative timeout", body: with("", `"timeout_ms":-1`), path: "exec.timeout_ms"},
		{name: "timeout over 30 days", body: with("", fmt.Sprintf(`"timeout_ms":%d`, schemas.MaxTimeoutMS+1)), path: "exec.timeout_ms"},
		{name: "fraction of a timeout", body: with("", `"timeout_ms":1.5`), path: "exec.timeout_ms"},
		{name: "timeout as text", body: with("", `"timeout_ms":"1s"`), path: "exec.timeout_ms"},
		{name: "timeout over int64", body: with("", `"timeout_ms":99999999999999999999`), path: "exec.timeout_ms"},
		{name: "endless timeout", body: with("", `"timeout_ms":`+strings.Repeat("1", 300)), path: "exec.timeout_ms"},
		{name: "negative grace", body: with("", `"grace_ms":-1`), path: "exec.grace_ms"},
		{name: "stdin in no base64", body: with("", `"stdin":"a?b"`), path: "exec.stdin"},
		{name: "stdin without padding", body: with("", `"stdin":"YQ"`), path: "exec.stdin"},
		{name: "stdin as bytes", body: with("", `"stdin":[1,2]`), path: "exec.stdin"},
		{name: "stdin_open as text", body: with("", `"stdin_open":"yes"`), path: "exec.stdin_open"},
		{name: "negative output limit", body: with("", `"output_limit":-1`), path: "exec.output_limit"},
		{name: "output limit over 64 MiB", body: with("", fmt.Sprintf(`"output_limit":%d`, schemas.MaxOutputLimit+1)), path: "exec.output_limit"},
		{name: "unknown retry", body: with("", `"retry":"always"`), path: "exec.retry"},
	}
}

func TestBadCommands(t *testing.T) {
	for _, tt := range badCommands() {
		t.Run(tt.name, func(t *testing.T) {
			_, err := schemas.DecodeCommand([]byte(tt.body))
			checkRefusal(t, err, tt.path)
			if err := bySchema(t, "command", []byte(tt.body)); err == nil && !tt.goAlone {
				t.Error("the JSON Schema lets it pass")
			}
		})
	}
}

// checkRefusal checks that an error is one that can travel, and blames this field.
func checkRefusal(t *testing.T, err error, path string) {
	t.Helper()
	e, ok := errors.AsType[*schemas.Error](err)
	if !ok {
		t.Fatalf("want a coded error, got %v", err)
	}
	if e.Code != schemas.CodeInvalidArgument {
		t.Errorf("the code is %s", e.Code)
	}
	if e.Details["path"] != path {
		t.Errorf("details.path is %q, want %q (%s)", e.Details["path"], path, e.Message)
	}
	if !strings.HasPrefix(e.Message, path) {
		t.Errorf("the message does not begin with the path: %s", e.Message)
	}
	if body := mustJSON(t, e); len(body) > maxRefusal {
		t.Errorf("the error is %d bytes", len(body))
	}
}

// maxRefusal bounds an encoded refusal: it has to fit into an event, whatever was sent.
const maxRefusal = 8 << 10

func TestCommandSize(t *testing.T) {
	body := func(n int) []byte { return []byte(with("", `"stdin":"`+strings.Repeat("A", n)+`"`)) }
	rest := len(body(0))
	room := (schemas.MaxCommandBytes - rest) / 4 * 4
	if _, err := schemas.DecodeCommand(body(room)); err != nil {
		t.Errorf("%d bytes: %v", rest+room, err)
	}
	if _, err := schemas.DecodeCommand(body(room + 8)); !errors.Is(err, schemas.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	args := &schemas.Command{SpecVersion: "1", Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{Command: "echo", Args: []string{strings.Repeat("<", schemas.MaxCommandBytes/2)}}}
	if _, err := schemas.EncodeCommand(args); err != nil {
		t.Errorf("half the limit in characters that HTML escapes: %v", err)
	}
	args.Exec.Args = append(args.Exec.Args, args.Exec.Args[0])
	if _, err := schemas.EncodeCommand(args); !errors.Is(err, schemas.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestCommandLimits(t *testing.T) {
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
		if c.SpecVersion == "" {
			t.Errorf("%s: nothing was decoded", exec)
		}
	}
	if got := (&schemas.Exec{}).Limit(); got != schemas.DefaultOutputLimit {
		t.Errorf("the default limit is %d", got)
	}
}

func TestEncodeCommand(t *testing.T) {
	c, err := schemas.DecodeCommand(examples(t)["command.full"])
	if err != nil {
		t.Fatal(err)
	}
	body, err := schemas.EncodeCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.HasSuffix(body, []byte("\n")) {
		t.Error("a line feed at the end")
	}
	back, err := schemas.DecodeCommand(body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, back); diff != "" {
		t.Error(diff)
	}
	c.Thread = "a.b"
	if _, err := schemas.EncodeCommand(c); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Errorf("an invalid command is encoded: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	one := func() *schemas.Command {
		limit := int64(1)
		return &schemas.Command{SpecVersion: "1", Op: schemas.OpExec, Thread: "t", Key: "k", Exec: &schemas.Exec{
			Command: "c", Args: []string{"a"}, Env: map[string]string{"A": "1", "B": "2"}, OutputLimit: &limit,
		}}
	}
	base := one().Fingerprint()
	if one().Fingerprint() != base || len(base) != 64 {
		t.Error("equal commands have other fingerprints")
	}
	for name, change := range map[string]func(*schemas.Command){
		"thread": func(c *schemas.Command) { c.Thread = "u" }, "key": func(c *schemas.Command) { c.Key = "l" },
		"command": func(c *schemas.Command) { c.Exec.Command = "d" }, "args": func(c *schemas.Command) { c.Exec.Args = nil },
		"env": func(c *schemas.Command) { c.Exec.Env["A"] = "2" }, "stdin": func(c *schemas.Command) { c.Exec.Stdin = []byte("x") },
		"timeout": func(c *schemas.Command) { c.Exec.TimeoutMS = 1 }, "limit": func(c *schemas.Command) { *c.Exec.OutputLimit = 0 },
	} {
		c := one()
		change(c)
		if c.Fingerprint() == base {
			t.Errorf("another %s has the same fingerprint", name)
		}
	}
}

func TestBadControls(t *testing.T) {
	tests := []struct {
		schema, body, path string
	}{
		{"signal", `{}`, "signal"},
		{"signal", `{"signal":""}`, "signal"},
		{"signal", `{"signal":"SIG INT"}`, "signal"},
		{"signal", `{"signal":9}`, "signal"},
		{"signal", `{"signal":"KILL","pid":1}`, "pid"},
		{"signal", `{"Signal":"KILL"}`, "Signal"},
		{"signal", `{"signal":"` + strings.Repeat("K", 40_000) + `"}`, "signal"},
		{"kill", `{"grace_ms":-1}`, "grace_ms"},
		{"kill", `{"grace_ms":2592000001}`, "grace_ms"},
		{"kill", `{"grace":10}`, "grace"},
		{"kill", ``, ""},
		{"kill", `null`, ""},
		{"place-request", `{}`, "thread"},
		{"place-request", `{"thread":"a.b"}`, "thread"},
		{"place-request", `{"thread":"t","provider":"a b"}`, "provider"},
		{"place-request", `{"thread":"t","worker":"w"}`, "worker"},
		{"place-request", `{"thread":"t","template":"../x"}`, "template"},
		{"place-request", `{"thread":"t","user":"` + strings.Repeat("u", schemas.MaxUserBytes+1) + `"}`, "user"},
		{"place-request", `{"thread":"t","tags":[]}`, "tags"},
		{"place-request", `{"thread":"t","tags":{"":"v"}}`, "tags"},
		{"place-request", `{"thread":"t","tags":{"a":1}}`, "tags.a"},
		{"place-request", `{"thread":"t","tags":{"a":"` + strings.Repeat("v", schemas.MaxTagBytes+1) + `"}}`, "tags.a"},
		{"place-request", `{"thread":"t","tags":{"` + strings.Repeat("n", schemas.MaxTagBytes+1) + `":"v"}}`, "tags"},
		{"place-request", `{"thread":"t","tags":` + manyTags(schemas.MaxTags+1) + `}`, "tags"},
		{"place-request", `{"thread":"t","idle_timeout_ms":-1}`, "idle_timeout_ms"},
		{"place-request", `{"thread":"t","max_lifetime_ms":2592000001}`, "max_lifetime_ms"},
		{"place-request", `{"thread":"t","start":1}`, "start"},
		{"stop", `{"session":"a.b"}`, "session"},
		{"stop", `{"grace_ms":-1}`, "grace_ms"},
		{"stop", `{"grace_ms":null}`, "grace_ms"},
		{"stop", `{"force":true}`, "force"},
		{"stop", `[]`, ""},
		{"start", `{"session":"*"}`, "session"},
		{"start", `{"template":"t"}`, "template"},
		{"renew", `{"session":"a b"}`, "session"},
		{"renew", `{"idle_timeout_ms":2592000001}`, "idle_timeout_ms"},
		{"renew", `{"expires":"never"}`, "expires"},
	}
	for _, tt := range tests {
		_, err := decoded(tt.schema, []byte(tt.body))
		t.Run(tt.schema+" "+tt.path, func(t *testing.T) {
			checkRefusal(t, err, tt.path)
			if bySchema(t, tt.schema, []byte(tt.body)) == nil {
				t.Errorf("the JSON Schema lets %.80s pass", tt.body)
			}
		})
	}
	large := []byte(`{"signal":"` + strings.Repeat("K", schemas.MaxControlBytes) + `"}`)
	if _, err := schemas.DecodeSignalRequest(large); !errors.Is(err, schemas.ErrTooLarge) {
		t.Errorf("a large signal request: %v", err)
	}
}

func manyTags(n int) string {
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf(`"t%d":"v"`, i)
	}
	return "{" + strings.Join(tags, ",") + "}"
}

func TestBadEvents(t *testing.T) {
	for _, body := range []string{``, `{`, `[]`, `null`, `{}`, `{"specversion":"1.0"}`, `{"type":"process.exited"}`, `{"specversion":"1.0","type":"x","time":"now"}`} {
		if _, err := schemas.DecodeEvent([]byte(body)); !errors.Is(err, schemas.ErrInvalidArgument) {
			t.Errorf("%s: %v", body, err)
		}
		if bySchema(t, "event", []byte(body)) == nil {
			t.Errorf("the JSON Schema lets %s pass", body)
		}
	}
	ev := schemas.Event{Type: schemas.TypeProcessExited, Data: json.RawMessage(`{"exit_code":"0"}`)}
	if err := ev.Decode(new(schemas.Result)); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Errorf("bad data: %v", err)
	}
}

func TestEventTypes(t *testing.T) {
	for _, typ := range schemas.EventTypes() {
		terminal := typ == "process.exited" || typ == "process.lost" || typ == "process.rejected"
		if typ.Terminal() != terminal || typ.OfProcess() != strings.HasPrefix(string(typ), "process.") {
			t.Errorf("%s: terminal %v, of a process %v", typ, typ.Terminal(), typ.OfProcess())
		}
		if strings.Count(string(typ), ".") != 1 {
			t.Errorf("%s is not two subject tokens", typ)
		}
	}
}
