package processor_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/schemas"
)

func TestExecIsAcceptedStartedAndExitedInThatOrder(t *testing.T) {
	c, w := newRig(t)
	e := sh("echo out; echo err >&2; exit 3")
	e.Env = map[string]string{"TOKEN": "hunter2"}
	e.Stdin = []byte("swordfish")
	cmd := command("secretkey", e)
	r := c.exec(cmd)
	if r.Timestamp.IsZero() || r.DurationMS <= 0 || r.Log == nil || r.Log.Chunks != 2 {
		t.Fatalf("timestamp %v, duration %v ms, log range %+v: want all, with 2 chunks", r.Timestamp, r.DurationMS, r.Log)
	}
	testkit.Equal(t, "result", r, &schemas.Result{
		Stdout: "out\n", Stderr: "err\n", StdoutBytes: 4, StderrBytes: 4, ExitCode: 3, Reason: schemas.ReasonExited,
		Process: processOf(cmd), Thread: "t", Command: "sh", Args: cmd.Exec.Args, Worker: "w1", Epoch: 1, Fingerprint: cmd.Fingerprint(),
	}, cmpopts.IgnoreFields(schemas.Result{}, "Timestamp", "DurationMS", "UserMS", "SystemMS", "MaxRSSBytes", "Log"))
	c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)

	var a schemas.Accepted
	c.must(c.awaitType(r.Process, schemas.TypeProcessAccepted).Decode(&a))
	equal(t, "a.Fingerprint", a.Fingerprint, cmd.Fingerprint())
	equal(t, "a.Command", a.Command, "sh")
	equal(t, "a.Epoch", a.Epoch, 1)
	var s schemas.Started
	c.must(c.awaitType(r.Process, schemas.TypeProcessStarted).Decode(&s))
	wantFields(t, s, schemas.Started{Fingerprint: cmd.Fingerprint(), Sandbox: w.provider.sandboxes()[0].ID()})
	equal(t, "process.started has a pid", s.PID != 0, true)
	// One line reports the outcome, with the ids to find it by, and no secrets.
	got := w.log.of("command_failed")
	if len(got) != 1 || got[0]["command_id"] != r.Process || got[0]["thread"] != "t" || got[0]["session_id"] == "" || got[0]["attempt"] != 1.0 ||
		got[0]["exit_code"] != 3.0 {
		t.Fatalf("command_failed lines are %v, want one with the command's fields", got)
	}
	for _, secret := range []string{"hunter2", "swordfish", "secretkey", "echo out"} {
		if bytes.Contains(w.log.raw.Bytes(), []byte(secret)) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

func TestCommandThatCannotRunHasTheExitCodeOfAShell(t *testing.T) {
	c, _ := newRig(t)
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
			t.Errorf("%.40q: reason %s, exit code %d, error %v; want rejected, %d, invalid_argument", k.command, r.Reason, r.ExitCode, r.Error, k.code)
		}
		c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessRejected)
	}
}

func TestSignalAndTimeoutEndTheTree(t *testing.T) {
	c, _ := newRig(t)
	r := c.exec(command("k1", sh("kill -TERM $$")))
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 143, Signal: 15})
	equal(t, "success", r.Success, false)
	e := sh("echo before; sleep 300 & sleep 300")
	// The timeout counts before the script has had any time: on a busy machine it needs a longer one to print.
	for e.TimeoutMS = 300; ; e.TimeoutMS *= 3 {
		r := c.exec(command(fmt.Sprint("k", e.TimeoutMS), e))
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonTimedOut, ExitCode: schemas.ExitTimedOut})
		if r.Stdout == "before\n" {
			break
		}
		equal(t, "stdout", r.Stdout, "")
	}
}

func TestOutputInAResultStaysWithinItsLimits(t *testing.T) {
	c, _ := newRig(t)
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
			func(s string) bool { return len(s) > 500 && strings.Trim(s, "\x01") == "" }, true},
		{"the record has only the beginning", `yes | head -c 3000000`, limit(schemas.MaxOutputLimit), 3000000, "",
			func(s string) bool { return len(s) == schemas.MaxRecordOutput*9/16 }, true},
	} {
		e := sh(k.script)
		e.OutputLimit = k.limit
		cmd := command(k.name, e)
		r := c.exec(cmd)
		if r.StdoutBytes != k.total || r.StdoutEncoding != k.encoding || !k.kept(r.Stdout) || r.StdoutTruncated != k.truncated {
			t.Errorf("%s: %d bytes, %d kept, encoding %q, truncated %v; want %d bytes, encoding %q, truncated %v",
				k.name, r.StdoutBytes, len(r.Stdout), r.StdoutEncoding, r.StdoutTruncated, k.total, k.encoding, k.truncated)
		}
		_, stored, _, err := c.conn.Stored(c.ctx, schemas.DefaultTenant, "t", r.Process)
		c.must(err)
		if stored != k.total || (r.Log == nil) != (k.total == 0) {
			t.Errorf("%s: %d bytes in the log with range %+v, want %d", k.name, stored, r.Log, k.total)
		}
		last, err := c.conn.Last(c.ctx, schemas.DefaultTenant, "t", r.Process)
		c.must(err)
		if body, _ := json.Marshal(last); len(body) > schemas.MaxRecordOutput+2<<10 {
			t.Errorf("%s: a record of %d bytes, want at most %d", k.name, len(body), schemas.MaxRecordOutput+2<<10)
		}
	}
}

func TestRoomIsFreeBeforeTheResultIsSent(t *testing.T) {
	c, _ := newRig(t, func(cfg *processor.Config) { cfg.MaxProcesses = 1 })
	for i := range 30 {
		wantFields(t, c.exec(command(strings.Repeat("k", i+1), schemas.Exec{Command: "true"})), schemas.Result{Success: true})
	}
}

func TestFullWorkerRefusesFastAndDeclinesDurableCommands(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) { cfg.MaxProcesses = 1 })
	running := command("k1", sh("echo on; sleep 300"))
	call := c.start(running, "on")
	refused := schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodePoolExhausted)}
	w.wantAnswer(command("k2", sh(":")), false, 1, schemas.ActionDone, refused)
	// A worker that is full for minutes must not make the waiting commands dead letters.
	v, answers := w.deliver(command("k2", sh(":")), true, 500)
	wantFields(t, v, schemas.Verdict{Action: schemas.ActionFull, To: "w1"})
	equal(t, "answers", len(answers), 0)
	// A process that runs already takes no more room.
	v, _ = w.deliver(running, false, 1)
	equal(t, "action for a running process", v.Action, schemas.ActionDone)
	c.must(w.control(processOf(running), schemas.Control{Kill: &schemas.KillRequest{}}))
	c.end(call)
	w.wantAnswer(command("k2", sh(":")), true, 501, schemas.ActionDone, schemas.Result{Success: true})
}

func TestInvalidCommandIsAnsweredReportedAndDead(t *testing.T) {
	c, w := newRig(t)
	for _, durable := range []bool{false, true} {
		inbox, answers := w.inbox()
		why := schemas.Errorf(schemas.CodeInvalidArgument, "exec.command: missing").With("path", "exec.command")
		v := w.HandleCommand(c.ctx, schemas.Delivery{Tenant: "default", Thread: "t", Op: "exec", Invalid: why, Inbox: inbox, Durable: durable, Attempt: 1})
		wantFields(t, v, schemas.Verdict{Action: schemas.ActionDead, Reason: coded(schemas.CodeInvalidArgument)})
		r := c.terminal(answers)
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, ExitCode: schemas.ExitSluiceFailed})
		equal(t, "path", r.Error.Details["path"], "exec.command")
	}
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeValidationFailed && ev.Thread == "t" })
	// An invalid thread name cannot be a part of the event's subject.
	v := w.HandleCommand(c.ctx, schemas.Delivery{Tenant: "no tenant", Thread: "no thread", Invalid: schemas.Errorf(schemas.CodeInvalidArgument, "thread")})
	equal(t, "action", v.Action, schemas.ActionDead)
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeValidationFailed && ev.Thread == "_" })

	cmd := command("worn", sh(":"))
	w.wantAnswer(cmd, true, w.Config().MaxAttempts+1, schemas.ActionDead, failed(schemas.CodeUnavailable))
	c.wantRecords(processOf(cmd))
	if got := w.log.of("command_refused"); len(got) != 4 || got[3]["command_id"] != processOf(cmd) {
		t.Fatalf("command_refused lines are %v, want 4, the last of %s", got, processOf(cmd))
	}
	wantFields(t, c.exec(command("after", sh(":"))), schemas.Result{Success: true})
}

// control gives the worker a control message and waits for the outcome.
func (r *rig) control(process string, ctl schemas.Control) error {
	ctl.Tenant, ctl.Process = cmp.Or(ctl.Tenant, schemas.DefaultTenant), process
	if ctl.Thread == "" {
		ctl.Thread = "t"
	}
	done := make(chan error, 1)
	r.HandleControl(r.cell.ctx, ctl, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-r.cell.ctx.Done():
		return r.cell.ctx.Err()
	}
}
