package processor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
)

func TestExecIsAcceptedStartedAndExitedInThatOrder(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	e := sh("echo out; echo err >&2; exit 3")
	e.Env = map[string]string{"TOKEN": "hunter2"}
	e.Stdin = []byte("swordfish")
	cmd := command("secretkey", e)
	r := c.exec(cmd)
	if r.Stdout != "out\n" || r.Stderr != "err\n" || r.ExitCode != 3 || r.Reason != schemas.ReasonExited || r.Success || r.Signal != 0 ||
		r.StdoutBytes != 4 || r.StderrBytes != 4 || r.StdoutTruncated || r.StderrTruncated || r.Error != nil {
		t.Fatalf("%+v", r)
	}
	if r.Process != processOf(cmd) || r.Thread != "t" || r.Command != "sh" || len(r.Args) != 2 || r.Worker != "w1" || r.Epoch != 1 ||
		r.Fingerprint != cmd.Fingerprint() || r.Timestamp.IsZero() || r.DurationMS <= 0 || r.Log == nil || r.Log.Chunks != 2 {
		t.Fatalf("%+v", r)
	}
	c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)

	var a schemas.Accepted
	c.must(c.awaitType(r.Process, schemas.TypeProcessAccepted).Decode(&a))
	if a.Fingerprint != cmd.Fingerprint() || a.Command != "sh" || a.Epoch != 1 {
		t.Fatalf("%+v", a)
	}
	var s schemas.Started
	c.must(c.awaitType(r.Process, schemas.TypeProcessStarted).Decode(&s))
	if s.Fingerprint != cmd.Fingerprint() || s.PID == 0 || s.Sandbox != w.stage.sandboxes()[0].ID() {
		t.Fatalf("%+v", s)
	}
	// One line tells the outcome, with what it is found by, and no secrets.
	got := w.log.of("command_failed")
	if len(got) != 1 || got[0]["command_id"] != r.Process || got[0]["thread"] != "t" || got[0]["session_id"] == "" || got[0]["attempt"] != 1.0 ||
		got[0]["exit_code"] != 3.0 {
		t.Fatalf("%v", got)
	}
	for _, secret := range []string{"hunter2", "swordfish", "secretkey", "echo out"} {
		if bytes.Contains(w.log.raw.Bytes(), []byte(secret)) {
			t.Errorf("the log tells %q", secret)
		}
	}
}

func TestCommandsThatCannotRunAreRejectedAsAShellDoes(t *testing.T) {
	c := newCell(t)
	c.worker("w1")
	for _, k := range []struct {
		command string
		code    int
	}{
		{"no-such-program-anywhere", schemas.ExitNotFound},
		{"/no/such/program", schemas.ExitNotFound},
		{"/etc/passwd", schemas.ExitNotExecutable},
		{"/" + strings.Repeat("\x01", schemas.MaxPathBytes-1), schemas.ExitNotExecutable},
	} {
		cmd := command(k.command[:min(len(k.command), 200)], schemas.Exec{Command: k.command})
		r := c.exec(cmd)
		if r.Reason != schemas.ReasonRejected || r.Error == nil || r.Error.Code != schemas.CodeInvalidArgument || r.Success ||
			(r.ExitCode != k.code && len(k.command) < schemas.MaxPathBytes) {
			t.Errorf("%.40q: %+v %v", k.command, r, r.Error)
		}
		c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessRejected)
	}
}

func TestASignalAndATimeoutEndTheTree(t *testing.T) {
	c := newCell(t)
	c.worker("w1")
	if r := c.exec(command("k1", sh("kill -TERM $$"))); r.Reason != schemas.ReasonKilled || r.ExitCode != 143 || r.Signal != 15 || r.Success {
		t.Fatalf("%+v", r)
	}
	e := sh("echo before; sleep 300 & sleep 300")
	e.TimeoutMS = 300
	if r := c.exec(command("k2", e)); r.Reason != schemas.ReasonTimedOut || r.ExitCode != schemas.ExitTimedOut || r.Stdout != "before\n" {
		t.Fatalf("%+v", r)
	}
}

func TestOutputIsKeptWithinItsLimitsAndARecordsRoom(t *testing.T) {
	c := newCell(t)
	c.worker("w1")
	limit := func(n int64) *int64 { return &n }
	for _, k := range []struct {
		name, script string
		limit        *int64
		total        int64
		encoding     schemas.Encoding
		kept         func(string) bool
		truncated    bool
	}{
		{"invalid UTF-8 is base64", `printf '\377\376'`, nil, 2, schemas.EncodingBase64, func(s string) bool { return s == "//4=" }, false},
		{"a limit cuts, and says so", `printf 0123456789`, limit(4), 10, "", func(s string) bool { return s == "0123" }, true},
		{"a limit never cuts a character", `printf 'aé'`, limit(2), 3, "", func(s string) bool { return s == "a" }, true},
		{"limit 0 keeps none", `printf 0123456789`, limit(0), 10, "", func(s string) bool { return s == "" }, true},
		{"nothing printed", `:`, nil, 0, "", func(s string) bool { return s == "" }, false},
		{"control characters still make a record", `head -c 1000000 /dev/zero | tr '\0' '\1'`, nil, 1000000, "",
			func(s string) bool { return len(s) > 100000 && strings.Trim(s, "\x01") == "" }, true},
		{"as much as NATS takes of 64 MiB asked for", `head -c 3000000 /dev/zero`, limit(schemas.MaxOutputLimit), 3000000, "",
			func(s string) bool { return len(s) > 100000 }, true},
	} {
		e := sh(k.script)
		e.OutputLimit = k.limit
		cmd := command(k.name, e)
		r := c.exec(cmd)
		if r.StdoutBytes != k.total || r.StdoutEncoding != k.encoding || !k.kept(r.Stdout) || r.StdoutTruncated != k.truncated {
			t.Errorf("%s: %d bytes, %d kept, encoding %q, truncated %v", k.name, r.StdoutBytes, len(r.Stdout), r.StdoutEncoding, r.StdoutTruncated)
		}
		_, stored, _, err := c.conn.Stored(c.ctx, schemas.DefaultTenant, "t", r.Process)
		c.must(err)
		if stored != k.total || (r.Log == nil) != (k.total == 0) {
			t.Errorf("%s: %d bytes are in the log, range %+v", k.name, stored, r.Log)
		}
		last, err := c.conn.Last(c.ctx, schemas.DefaultTenant, "t", r.Process)
		c.must(err)
		if body, _ := json.Marshal(last); int64(len(body)) > c.conn.MaxPayload() {
			t.Errorf("%s: a record of %d bytes", k.name, len(body))
		}
	}
}

func TestAResultIsToldOnlyWhenThereIsRoomForTheNextCommand(t *testing.T) {
	c := newCell(t)
	c.worker("w1", func(cfg *Config) { cfg.MaxProcesses = 1 })
	for i := range 30 {
		if r := c.exec(command(strings.Repeat("k", i+1), schemas.Exec{Command: "true"})); !r.Success {
			t.Fatalf("command %d: %+v %v", i, r, r.Error)
		}
	}
}

func TestAFullWorkerRefusesTheFastAndHandsBackTheDurable(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *Config) { cfg.MaxProcesses = 1 })
	running := command("k1", sh("echo on; sleep 300"))
	call := c.send(running)
	c.output(processOf(running), "on")
	v, answers := w.deliver(command("k2", sh(":")), false, 1)
	if r := c.terminal(answers); v.Action != schemas.ActionDone || r.Error.Code != schemas.CodePoolExhausted || r.Reason != schemas.ReasonRejected {
		t.Fatalf("%v %+v", v, r.Error)
	}
	// A worker that is full for minutes must not bury what waits.
	v, answers = w.deliver(command("k2", sh(":")), true, 500)
	if v.Action != schemas.ActionRetry || len(answers) != 0 {
		t.Fatalf("%v, %d answers", v, len(answers))
	}
	// What runs already takes no more room.
	if v, _ := w.deliver(running, false, 1); v.Action != schemas.ActionDone {
		t.Fatalf("%v", v)
	}
	if err := w.control(processOf(running), schemas.Control{Kill: &schemas.KillRequest{}}); err != nil {
		t.Fatal(err)
	}
	c.end(call)
	if v, answers := w.deliver(command("k2", sh(":")), true, 501); v.Action != schemas.ActionDone || !c.terminal(answers).Success {
		t.Fatal(v)
	}
}

func TestWhatCanNeverBeAcceptedIsAnsweredToldAndBuried(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1")
	for _, durable := range []bool{false, true} {
		inbox, answers := w.inbox()
		why := schemas.Errorf(schemas.CodeInvalidArgument, "exec.command: missing").With("path", "exec.command")
		v := w.HandleCommand(c.ctx, schemas.Delivery{Tenant: "default", Thread: "t", Op: "exec", Invalid: why, Inbox: inbox, Durable: durable, Attempt: 1})
		if v.Action != schemas.ActionDead || v.Reason == nil || v.Reason.Code != schemas.CodeInvalidArgument {
			t.Fatalf("%+v", v)
		}
		r := c.terminal(answers)
		if r.Reason != schemas.ReasonRejected || r.Error.Details["path"] != "exec.command" || r.ExitCode != schemas.ExitSluiceFailed {
			t.Fatalf("%+v", r)
		}
	}
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeValidationFailed && ev.Thread == "t" })
	// A thread that is none cannot name the event's subject.
	v := w.HandleCommand(c.ctx, schemas.Delivery{Tenant: "no tenant", Thread: "no thread", Invalid: schemas.Errorf(schemas.CodeInvalidArgument, "thread")})
	if v.Action != schemas.ActionDead {
		t.Fatalf("%+v", v)
	}
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeValidationFailed && ev.Thread == "_" })

	cmd := command("worn", sh(":"))
	v, answers := w.deliver(cmd, true, w.cfg.MaxAttempts+1)
	if r := c.terminal(answers); v.Action != schemas.ActionDead || r.Error.Code != schemas.CodeUnavailable {
		t.Fatalf("%+v %+v", v, r)
	}
	c.wantRecords(processOf(cmd))
	if got := w.log.of("command_refused"); len(got) != 4 || got[3]["command_id"] != processOf(cmd) {
		t.Fatalf("%v", got)
	}
	if r := c.exec(command("after", sh(":"))); !r.Success {
		t.Fatalf("the worker did not survive: %+v", r)
	}
}

// control gives the worker a control message and waits for what became of it.
func (r *rig) control(process string, ctl schemas.Control) error {
	ctl.Tenant, ctl.Process = schemas.DefaultTenant, process
	if ctl.Thread == "" {
		ctl.Thread = "t"
	}
	done := make(chan error, 1)
	r.HandleControl(r.cell.ctx, ctl, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-time.After(patient):
		return errStuck
	}
}
