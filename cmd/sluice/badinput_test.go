package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/schemas"
)

// stranger is a NATS client with no code of Sluice's.
func (s *server) stranger(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.url, nats.Token(s.token))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// refusal reads the answer to a command that was not accepted.
func refusal(t *testing.T, m *nats.Msg) *schemas.Error {
	t.Helper()
	ev, err := schemas.DecodeEvent(m.Data)
	if err != nil {
		t.Fatalf("%v: %s", err, m.Data)
	}
	var r schemas.Result
	if err := ev.Decode(&r); err != nil || ev.Type != schemas.TypeProcessRejected || r.Error == nil {
		t.Fatalf("no refusal: %s", m.Data)
	}
	return r.Error
}

func badCommand(change func(map[string]any)) []byte {
	c := map[string]any{"specversion": "1", "op": "exec", "thread": "t1", "key": unique(), "exec": map[string]any{"command": "true"}}
	change(c)
	body, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return body
}

// A command that is none is refused on both ways in, by a code and a path; on the durable one it is kept as a dead letter.
func TestBadCommandsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	c.good() // from here on the thread has an owner, so that the fast way is open
	nc := s.stranger(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	subjects := events.NewSubjects(schemas.DefaultCell)
	for _, tt := range []struct {
		name, path string
		op         schemas.Op
		body       []byte
	}{
		{"malformed JSON", "", "exec", []byte(`{"specversion":`)},
		{"no JSON at all", "", "exec", []byte("\xff\x00\x1b[31m")},
		{"an empty message", "", "exec", nil},
		{"an unknown op", "op", "fly", badCommand(func(c map[string]any) { c["op"] = "fly" })},
		{"an op that is not the subject's", "op", "fly", badCommand(func(map[string]any) {})},
		{"a bad thread id", "thread", "exec", badCommand(func(c map[string]any) { c["thread"] = "a.b *" })},
		{"another thread", "thread", "exec", badCommand(func(c map[string]any) { c["thread"] = "t2" })},
		{"a missing command", "exec.command", "exec", badCommand(func(c map[string]any) { c["exec"] = map[string]any{} })},
		{"a missing exec", "exec", "exec", badCommand(func(c map[string]any) { delete(c, "exec") })},
		{"a missing key", "key", "exec", badCommand(func(c map[string]any) { delete(c, "key") })},
		{"a negative timeout", "exec.timeout_ms", "exec", badCommand(func(c map[string]any) {
			c["exec"] = map[string]any{"command": "true", "timeout_ms": -1}
		})},
		{"an unknown field", "", "exec", badCommand(func(c map[string]any) { c["shell"] = true })},
		{"too many arguments", "", "exec", badCommand(func(c map[string]any) {
			c["exec"] = map[string]any{"command": "true", "args": []string{strings.Repeat("x", schemas.MaxCommandBytes)}}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := schemas.CodeInvalidArgument
			if tt.name == "too many arguments" {
				want = schemas.CodeTooLarge
			}
			check := func(way string, m *nats.Msg) {
				e := refusal(t, m)
				if e.Code != want || (tt.path != "" && e.Details["path"] != tt.path) {
					t.Errorf("%s: %s, path %q: %s", way, e.Code, e.Details["path"], e.Message)
				}
			}
			m, err := nc.Request(subjects.RPC("default", "t1", tt.op), tt.body, patience)
			if err != nil {
				t.Fatal(err)
			}
			check("fast", m)

			inbox, err := nc.SubscribeSync(nc.NewInbox())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err = js.PublishMsg(ctx, &nats.Msg{Subject: subjects.Command("default", "t1", tt.op), Header: nats.Header{"Sluice-Inbox": {inbox.Subject}}, Data: tt.body})
			if err != nil {
				t.Fatal(err)
			}
			if m, err = inbox.NextMsgWithContext(ctx); err != nil {
				t.Fatal(err)
			}
			check("durable", m)
			// It is kept before it is taken out of CMD, and answered before either: before the stream is there, if it is the first.
			for {
				m, err := lastDeadLetter(ctx, js, subjects.DeadLetter("default", "t1"))
				if err == nil && string(m.Data) == string(tt.body) {
					if m.Header.Get("Sluice-Reason") == "" {
						t.Error("the dead letter has no reason")
					}
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("no dead letter: %v", err)
				}
			}
			c.good()
		})
	}
	t.Run("a bad thread id in the subject", func(t *testing.T) {
		inbox, err := nc.SubscribeSync(nc.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err = js.PublishMsg(ctx, &nats.Msg{Subject: "sluice.v1.local.default.cmd.a$b.exec", Header: nats.Header{"Sluice-Inbox": {inbox.Subject}}, Data: badCommand(func(map[string]any) {})})
		if err != nil {
			t.Fatal(err)
		}
		m, err := inbox.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e := refusal(t, m); e.Code != schemas.CodeInvalidArgument || e.Details["path"] != "thread" {
			t.Errorf("%+v", e)
		}
		c.good()
	})
	t.Run("10 MB in one message", func(t *testing.T) {
		// The server itself refuses it and closes the connection: a client of its own, so that the others live.
		nc := s.stranger(t)
		if err := nc.Publish(subjects.RPC("default", "t1", "exec"), make([]byte, 10<<20)); !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("%v", err)
		}
		c.good()
	})
	if got := c.run("events"); !strings.Contains(got.stdout, "validation.failed") {
		t.Errorf("no event tells of it: %s", got.stdout)
	}
}

// The command line refuses the same, before or after the worker has seen it.
func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	for _, tt := range []struct {
		name string
		code schemas.Code
		word string
		args []string
	}{
		{"a bad thread id", schemas.CodeInvalidArgument, "thread", []string{"exec", "--provider", "local", "--thread", "a b", "--", "true"}},
		{"a missing command", schemas.CodeInvalidArgument, "no command", []string{"exec", "--provider", "local"}},
		{"an empty command", schemas.CodeInvalidArgument, "exec.command", execArgs("--", "")},
		{"a negative timeout", schemas.CodeInvalidArgument, "exec.timeout_ms", execArgs("--timeout", "-1s", "--", "true")},
		{"a timeout that is none", schemas.CodeInvalidArgument, "--timeout", execArgs("--timeout", "soon", "--", "true")},
		{"10 MB of arguments", schemas.CodeTooLarge, "bytes", execArgs("--", "echo", strings.Repeat("x", 10<<20))},
		{"10 MB in many arguments", schemas.CodeTooLarge, "bytes", execArgs(append([]string{"--", "echo"}, strings.Fields(strings.Repeat("xxxxxxxxx ", 1<<20))...)...)},
		{"a NUL byte", schemas.CodeInvalidArgument, "exec.args[0]", execArgs("--", "echo", "a\x00b")},
		{"an argument that is not UTF-8", schemas.CodeInvalidArgument, "exec.args[0]", execArgs("--", "echo", "\xff")},
		{"a folder outside the workspace", schemas.CodeInvalidArgument, "workspace", execArgs("-C", "../..", "--", "true")},
		{"an environment of Sluice's own", schemas.CodeInvalidArgument, "SLUICE_", execArgs("--env", "SLUICE_PROCESS=x", "--", "true")},
		{"an environment without a name", schemas.CodeInvalidArgument, "--env", execArgs("--env", "=x", "--", "true")},
		{"an unknown retry", schemas.CodeInvalidArgument, "exec.retry", execArgs("--retry", "often", "--", "true")},
		{"an unknown provider", schemas.CodePermissionDenied, "moon", []string{"exec", "--provider", "moon", "--thread", "t9", "--", "true"}},
		{"a key that is too long", schemas.CodeInvalidArgument, "key", execArgs("--key", strings.Repeat("k", 300), "--", "true")},
		{"logs of a process that never was", schemas.CodeNotFound, "nothere", []string{"logs", "nothere"}},
		{"logs of an id that is none", schemas.CodeInvalidArgument, "process", []string{"logs", "a/b"}},
		{"the end of a process that never was", schemas.CodeNotFound, "nothere", []string{"process", "kill", "nothere"}},
		{"events of a thread that is none", schemas.CodeInvalidArgument, "thread", []string{"events", "--thread", "*"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.run(tt.args...).wantError(t, tt.code, tt.word)
			c.good()
		})
	}
}

// A program that asked for JSON gets the failure as JSON too.
func TestAFailureIsJSONWhereJSONWasAskedFor(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	got := c.exec("--json", "--timeout", "-1s", "--", "true")
	var body struct {
		Error *schemas.Error `json:"error"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &body); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if body.Error == nil || body.Error.Code != schemas.CodeInvalidArgument || body.Error.Details["path"] != "exec.timeout_ms" || got.code != schemas.ExitSluiceFailed {
		t.Errorf("%+v", got)
	}
}

func TestACommandThatDoesNotExistIs127(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	if got := c.exec("--", "no-such-command"); got.code != 127 || !strings.Contains(got.stderr, "no-such-command") {
		t.Errorf("%+v", got)
	}
	r := c.exec("--json", "--", "./no/such/file").result(t)
	if r.ExitCode != 127 || r.Reason != schemas.ReasonRejected || r.Error == nil || r.Error.Code != schemas.CodeInvalidArgument {
		t.Errorf("%+v", r)
	}
	c.good()
}

func TestACommandThatIsNotExecutableIs126(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	c.good()
	file := filepath.Join(c.data, "workspaces", "default", "t1", "plain")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.exec("--", "./plain"); got.code != 126 || !strings.Contains(got.stderr, "plain") {
		t.Errorf("%+v", got)
	}
	if got := c.exec("--", "/"); got.code != 126 {
		t.Errorf("a folder: %+v", got)
	}
	if got := c.exec("--", "echo", strings.Repeat("x", 200<<10)); got.code != 126 {
		t.Errorf("an argument that is longer than the system takes: %d %s", got.code, got.stderr)
	}
	c.good()
}

func TestOutputThatIsNotUTF8ComesAsItIs(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	const raw = "a\xff\xfe\x00\x80z"
	args := []string{"--", "printf", `a\377\376\000\200z`}
	if got := c.exec(args...); got.stdout != raw || got.code != 0 {
		t.Errorf("%+v", got)
	}
	r := c.exec(append([]string{"--json"}, args...)...).result(t)
	if r.StdoutEncoding != schemas.EncodingBase64 || r.StdoutBytes != int64(len(raw)) {
		t.Errorf("%+v", r)
	}
	if b, err := r.Output(schemas.Stdout); err != nil || string(b) != raw {
		t.Errorf("%q, %v", b, err)
	}
	c.good()
}

// bulk is how much an output test prints: 1 GiB takes minutes under the race detector.
func bulk() int64 {
	if os.Getenv("SLUICE_LONG") != "" {
		return 1 << 30
	}
	return 64 << 20
}

func TestALargeOutputComesWhole(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	n := bulk()
	count := &counter{}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	var stderr buffer
	if code := c.runTo(null, count, &stderr, execArgs("--key", "bulk", "--", "head", "-c", formatInt(n), "/dev/zero")...); code != 0 || count.n != n {
		t.Fatalf("code %d, %d of %d bytes: %s", code, count.n, n, &stderr)
	}
	r := c.exec("--json", "--key", "bulk", "--", "head", "-c", formatInt(n), "/dev/zero").result(t)
	if r.StdoutBytes != n || !r.StdoutTruncated || int64(len(r.Stdout)) != schemas.DefaultOutputLimit {
		t.Errorf("%d bytes, %d kept, truncated %v", r.StdoutBytes, len(r.Stdout), r.StdoutTruncated)
	}
	c.good()
}

// counter counts what is written to it.
type counter struct{ n int64 }

// Write counts p.
func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// gate holds up whoever writes to it until it is opened.
type gate struct {
	once   chan struct{}
	opened chan struct{}
	to     counter
}

// Write tells that there is a writer, and waits.
func (g *gate) Write(p []byte) (int, error) {
	select {
	case g.once <- struct{}{}:
	default:
	}
	<-g.opened
	return g.to.Write(p)
}

// A follower that reads nothing holds up neither the process nor anybody else, and has lost nothing once it reads on.
func TestASlowFollowerHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	n := formatInt(bulk())
	slow := &gate{once: make(chan struct{}, 1), opened: make(chan struct{})}
	followed := make(chan outcome, 1)
	go func() {
		null, _ := os.Open(os.DevNull)
		defer func() { _ = null.Close() }()
		var stderr buffer
		followed <- outcome{code: c.runTo(null, slow, &stderr, execArgs("--key", "slow", "--", "head", "-c", n, "/dev/zero")...), stderr: stderr.String()}
	}()
	<-slow.once
	// The same key: this one reads as fast as it can, and ends while the other one stands still.
	count := &counter{}
	var stderr buffer
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if code := c.runTo(null, count, &stderr, execArgs("--key", "slow", "--", "head", "-c", n, "/dev/zero")...); code != 0 || count.n != bulk() {
		t.Errorf("the fast one: code %d, %d bytes: %s", code, count.n, &stderr)
	}
	c.good()
	close(slow.opened)
	if got := <-followed; got.code != 0 || slow.to.n != bulk() {
		t.Errorf("the slow one: %+v, %d bytes", got, slow.to.n)
	}
}

// A follower that goes away takes nothing along: the process goes on, and the rest of its log can be read.
func TestAFollowerThatGoesAwayIsNotMissed(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.up()
	x := c.spawn(execArgs("--key", "gone", "-n", "--", "bash", "-c", "echo one; read -r line < "+c.fifo("go")+"; echo two $line")...)
	if got := x.line(); got != "one" {
		t.Fatalf("%q", got)
	}
	id := c.only()
	follower := c.spawn("logs", "-f", id)
	if got := follower.line(); got != "one" {
		t.Fatalf("%q", got)
	}
	follower.kill()
	x.kill()
	c.release("go", "three")
	if got := c.run("logs", "-f", id); got.stdout != "one\ntwo three\n" {
		t.Errorf("%+v", got)
	}
	c.good()
}

// only is the id of the one process that runs.
func (c *cli) only() string {
	c.t.Helper()
	var list []struct {
		Process string `json:"process"`
	}
	got := c.run("process", "list", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list) != 1 {
		c.t.Fatalf("%d processes run: %v: %+v", len(list), err, got)
	}
	return list[0].Process
}

func formatInt(n int64) string { return strings.TrimSuffix(string(appendInt(nil, int(n))), "\n") }

func lastDeadLetter(ctx context.Context, js jetstream.JetStream, subject string) (*jetstream.RawStreamMsg, error) {
	dead, err := js.Stream(ctx, "sluice-local-DLQ")
	if err != nil {
		return nil, err
	}
	return dead.GetLastMsgForSubject(ctx, subject)
}
