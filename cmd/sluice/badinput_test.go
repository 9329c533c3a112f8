package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// stranger is a plain NATS client, without Sluice's code.
func (s *server) stranger(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.url, nats.Token(s.token))
	testkit.Must(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// rejection decodes the answer to a command that was not accepted.
func rejection(t *testing.T, m *nats.Msg) *schemas.Error {
	t.Helper()
	ev, err := schemas.DecodeEvent(m.Data)
	if err != nil {
		t.Fatalf("%v: %s", err, m.Data)
	}
	var r schemas.Result
	if err := ev.Decode(&r); err != nil || ev.Type != schemas.TypeProcessRejected || r.Error == nil {
		t.Fatalf("answer = %s, want a rejection with an error", m.Data)
	}
	return r.Error
}

// queue sends a command over CMD and returns the answer.
func queue(ctx context.Context, t *testing.T, js jetstream.JetStream, subject string, body []byte) *nats.Msg {
	t.Helper()
	inbox, err := js.Conn().SubscribeSync(js.Conn().NewInbox())
	testkit.Must(t, err)
	_, err = js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: nats.Header{"Sluice-Inbox": {inbox.Subject}}, Data: body})
	testkit.Must(t, err)
	m, err := inbox.NextMsgWithContext(ctx)
	testkit.Must(t, err)
	return m
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

// An invalid command is rejected with a code and a path, over rpc and over CMD. Over CMD it also becomes a dead letter.
func TestInvalidCommandsAreRejected(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	c.good() // gives the thread an owner, which answers over rpc
	nc := s.stranger(t)
	js, err := jetstream.New(nc)
	testkit.Must(t, err)
	subjects := events.NewSubjects(schemas.DefaultCell)
	for _, tt := range []struct {
		name, path string
		op         schemas.Op
		body       []byte
	}{
		{"malformed JSON", "", "exec", []byte(`{"specversion":`)},
		{"not JSON", "", "exec", []byte("\xff\x00\x1b[31m")},
		{"an empty message", "", "exec", nil},
		{"an unknown op", "op", "fly", badCommand(func(c map[string]any) { c["op"] = "fly" })},
		{"an op that is not the subject's", "op", "fly", badCommand(func(map[string]any) {})},
		{"an invalid thread id", "thread", "exec", badCommand(func(c map[string]any) { c["thread"] = "a.b *" })},
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
				e := rejection(t, m)
				if e.Code != want {
					t.Errorf("%s: code = %s, want %s: %s", way, e.Code, want, e.Message)
				}
				if path := e.Details["path"]; tt.path != "" && path != tt.path {
					t.Errorf("%s: path = %q, want %q: %s", way, path, tt.path, e.Message)
				}
			}
			m, err := nc.Request(subjects.RPC("default", "t1", tt.op), tt.body, testkit.Timeout)
			testkit.Must(t, err)
			check("rpc", m)

			ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
			defer cancel()
			check("CMD", queue(ctx, t, js, subjects.Command("default", "t1", tt.op), tt.body))
			// The answer comes first, then the dead letter, whose stream may have to be created.
			for {
				m, err := lastDeadLetter(ctx, js, subjects.DeadLetter("default", "t1"))
				if err == nil && string(m.Data) == string(tt.body) {
					if m.Header.Get("Sluice-Reason") == "" {
						t.Error("the dead letter has no Sluice-Reason header")
					}
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("no dead letter was stored: %v", err)
				}
			}
			c.good()
		})
	}
	t.Run("an invalid thread id in the subject", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
		defer cancel()
		e := rejection(t, queue(ctx, t, js, "sluice.v1.local.default.cmd.a$b.exec", badCommand(func(map[string]any) {})))
		testkit.Equal(t, "code", e.Code, schemas.CodeInvalidArgument)
		testkit.Equal(t, "path", e.Details["path"], "thread")
		c.good()
	})
	t.Run("10 MB in one message", func(t *testing.T) {
		// The server rejects it and closes the connection: this client is only for it.
		nc := s.stranger(t)
		if err := nc.Publish(subjects.RPC("default", "t1", "exec"), make([]byte, 10<<20)); !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("publish: error = %v, want %v", err, nats.ErrMaxPayload)
		}
		c.good()
	})
	c.run("events").check(t).printsPart("validation.failed")
}

// The command line rejects invalid arguments, some itself and some through the worker.
func TestInvalidArgumentsAreRejected(t *testing.T) {
	c := newUp(t)
	for _, tt := range []struct {
		name string
		code schemas.Code
		word string
		args []string
	}{
		{"an invalid thread id", schemas.CodeInvalidArgument, "thread", []string{"exec", "--provider", "local", "--thread", "a b", "--", "true"}},
		{"a missing command", schemas.CodeInvalidArgument, "no command", []string{"exec", "--provider", "local"}},
		{"an empty command", schemas.CodeInvalidArgument, "exec.command", execArgs("--", "")},
		{"a negative timeout", schemas.CodeInvalidArgument, "exec.timeout_ms", execArgs("--timeout", "-1s", "--", "true")},
		{"a timeout that is no duration", schemas.CodeInvalidArgument, "--timeout", execArgs("--timeout", "soon", "--", "true")},
		{"10 MB of arguments", schemas.CodeTooLarge, "bytes", execArgs("--", "echo", strings.Repeat("x", 10<<20))},
		{"10 MB in many arguments", schemas.CodeTooLarge, "bytes", execArgs(append([]string{"--", "echo"}, strings.Fields(strings.Repeat("xxxxxxxxx ", 1<<20))...)...)},
		{"a NUL byte", schemas.CodeInvalidArgument, "exec.args[0]", execArgs("--", "echo", "a\x00b")},
		{"an argument that is not UTF-8", schemas.CodeInvalidArgument, "exec.args[0]", execArgs("--", "echo", "\xff")},
		{"a folder outside the workspace", schemas.CodeInvalidArgument, "workspace", execArgs("-C", "../..", "--", "true")},
		{"a reserved environment variable", schemas.CodeInvalidArgument, "SLUICE_", execArgs("--env", "SLUICE_PROCESS=x", "--", "true")},
		{"an environment variable without a name", schemas.CodeInvalidArgument, "--env", execArgs("--env", "=x", "--", "true")},
		{"an unknown retry", schemas.CodeInvalidArgument, "exec.retry", execArgs("--retry", "often", "--", "true")},
		{"an unknown provider", schemas.CodeInvalidArgument, "moon", []string{"exec", "--provider", "moon", "--thread", "t9", "--", "true"}},
		{"a key that is too long", schemas.CodeInvalidArgument, "key", execArgs("--key", strings.Repeat("k", 300), "--", "true")},
		{"logs of an unknown process", schemas.CodeNotFound, "nothere", []string{"logs", "nothere"}},
		{"logs of an invalid id", schemas.CodeInvalidArgument, "process", []string{"logs", "a/b"}},
		{"kill of an unknown process", schemas.CodeNotFound, "nothere", []string{"process", "kill", "nothere"}},
		{"events of an invalid thread id", schemas.CodeInvalidArgument, "thread", []string{"events", "--thread", "*"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.run(tt.args...).wantError(t, tt.code, tt.word)
			c.good()
		})
	}
}

// With --json an error is JSON too.
func TestFailureIsPrintedAsJSON(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	got := c.exec("--json", "--timeout", "-1s", "--", "true")
	body := decode[struct{ Error *schemas.Error }](t, got.stdout)
	if body.Error == nil {
		t.Fatalf("standard output has no error: %s", got.stdout)
	}
	testkit.Equal(t, "code", body.Error.Code, schemas.CodeInvalidArgument)
	testkit.Equal(t, "path", body.Error.Details["path"], "exec.timeout_ms")
	testkit.Equal(t, "exit code", got.code, schemas.ExitSluiceFailed)
}

func TestMissingCommandExits127(t *testing.T) {
	c := newUp(t)
	c.exec("--", "no-such-command").check(t).exits(127).reports("no-such-command")
	r := c.exec("--json", "--", "./no/such/file").result(t)
	testkit.Equal(t, "exit code", r.ExitCode, 127)
	testkit.Equal(t, "reason", r.Reason, schemas.ReasonRejected)
	testkit.WantCode(t, r.Error, schemas.CodeInvalidArgument)
	c.good()
}

func TestUnexecutableCommandExits126(t *testing.T) {
	c := newUp(t)
	c.good()
	file := filepath.Join(c.data, "workspaces", "default", "t1", "plain")
	testkit.Must(t, os.WriteFile(file, []byte("text"), 0o600))
	c.exec("--", "./plain").check(t).exits(126).reports("plain")
	c.exec("--", "/").check(t).exits(126)
	c.exec("--", "echo", strings.Repeat("x", 200<<10)).check(t).exits(126) // an argument over the system's limit
	c.good()
}

func TestOutputNeedNotBeUTF8(t *testing.T) {
	c := newUp(t)
	const raw = "a\xff\xfe\x00\x80z"
	args := []string{"--", "printf", `a\377\376\000\200z`}
	c.exec(args...).check(t).exits(0).prints(raw)
	r := c.exec(append([]string{"--json"}, args...)...).result(t)
	testkit.Equal(t, "stdout_encoding", r.StdoutEncoding, schemas.EncodingBase64)
	testkit.Equal(t, "stdout_bytes", r.StdoutBytes, int64(len(raw)))
	b, err := r.Output(schemas.Stdout)
	testkit.Must(t, err)
	testkit.Equal(t, "stdout", string(b), raw)
	c.good()
}

// bulk is how much an output test prints, more than the 32 MiB that wait in memory for a follower: 1 GiB takes minutes under the race detector.
func bulk() int64 { return long[int64](1<<30, 48<<20) }

// execBulk prints that much.
func execBulk(flags ...string) []string {
	return execArgs(append(flags, "--", "head", "-c", strconv.FormatInt(bulk(), 10), "/dev/zero")...)
}

func TestLargeOutputIsComplete(t *testing.T) {
	c := newUp(t)
	var count counter
	c.runTo(c.null(), &count, execBulk("--key", "bulk")...).check(t).exits(0)
	testkit.Equal(t, "bytes printed", count.n, bulk())
	r := c.run(execBulk("--json", "--key", "bulk")...).result(t)
	testkit.Equal(t, "stdout_bytes", r.StdoutBytes, bulk())
	testkit.Equal(t, "stdout_truncated", r.StdoutTruncated, true)
	testkit.Equal(t, "bytes of stdout in the result", int64(len(r.Stdout)), int64(schemas.DefaultOutputLimit))
	c.good()
}

type counter struct{ n int64 }

// Write counts p.
func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// A follower that does not read blocks neither the process nor other followers, and misses nothing once it reads again.
func TestSlowFollowerBlocksNothing(t *testing.T) {
	c := newUp(t)
	slow, write := io.Pipe() // a write waits for a read
	followed := make(chan outcome, 1)
	null := c.null()
	go func() {
		followed <- c.runTo(null, write, execBulk("--key", "slow")...)
		_ = write.Close()
	}()
	_, err := io.ReadFull(slow, make([]byte, 1))
	testkit.Must(t, err)
	// The same key: this client reads at full speed and ends while the first one is blocked.
	var fast counter
	c.runTo(null, &fast, execBulk("--key", "slow")...).check(t).exits(0)
	testkit.Equal(t, "bytes of the fast client", fast.n, bulk())
	c.good()
	rest, err := io.Copy(io.Discard, slow)
	testkit.Must(t, err)
	testkit.Equal(t, "bytes of the slow client", 1+rest, bulk())
	(<-followed).check(t).exits(0)
}

// A follower is killed: the process continues, and the rest of its log can be read.
func TestKilledFollowerAffectsNothing(t *testing.T) {
	c := newUp(t)
	x := c.spawn(execArgs("--key", "gone", "-n", "--", "bash", "-c", "echo one; read -r line < "+c.fifo("go")+"; echo two $line")...)
	x.wantLine("one")
	id := c.only()
	follower := c.spawn("logs", "-f", id)
	follower.wantLine("one")
	follower.kill()
	x.kill()
	c.release("go", "three")
	c.run("logs", "-f", id).check(t).prints("one\ntwo three\n")
	c.good()
}

// only is the id of the only process that runs.
func (c *cli) only() string {
	c.t.Helper()
	got := c.run("process", "list", "--json")
	list := decode[[]struct{ Process string }](c.t, got.stdout)
	if len(list) != 1 {
		c.t.Fatalf("%d processes run, want 1: %s", len(list), got.stdout+got.stderr)
	}
	return list[0].Process
}

func lastDeadLetter(ctx context.Context, js jetstream.JetStream, subject string) (*jetstream.RawStreamMsg, error) {
	dead, err := js.Stream(ctx, "sluice-local-DLQ")
	if err != nil {
		return nil, err
	}
	return dead.GetLastMsgForSubject(ctx, subject)
}

// Ten minutes 10: the token of a URL that is out of place is not printed.
func TestURLOutOfPlaceIsPrintedWithoutItsToken(t *testing.T) {
	for _, args := range [][]string{{"ps"}, {"status"}, {"logs"}, {"session", "get"}, {}, {"session"}, {"exec", "--thread"}, {"up"}, {"up", "--listen"}} {
		for _, url := range []string{"nats://t0ken-of-ann@127.0.0.1:4222", "tls://ann:t0ken-of-ann@127.0.0.1:4222", "NATS://t0ken-of-ann@["} {
			r := newCLI(t).run(append(args, url)...)
			if r.code == 0 || strings.Contains(r.stderr, "t0ken") {
				t.Errorf("sluice %q: exit code %d, standard error %q, want an error without the token", append(args, url), r.code, r.stderr)
			}
		}
	}
}
