package processor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/internal/run"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestDeadSandboxLosesItsProcessAndIsReplaced(t *testing.T) {
	c, w := newRig(t)
	// The supervisor is the parent of the process: without it the sandbox is gone.
	cmd := command("k1", sh("echo on; kill -9 $PPID; sleep 300"))
	r := c.exec(cmd)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonLost, ExitCode: schemas.ExitSluiceFailed, Error: coded(schemas.CodeLost)})
	c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessLost)
	<-w.provider.sandboxes()[0].Done()
	wantFields(t, c.exec(command("k2", sh("echo again"))), schemas.Result{Stdout: "again\n"})
	if made := w.provider.sandboxes(); len(made) != 2 || made[0].ID() == made[1].ID() {
		t.Fatalf("%d sandboxes, want 2 with different ids", len(made))
	}
}

func TestEveryProcessEndHasItsRecord(t *testing.T) {
	c, w := newRig(t)
	exits := make(chan sandbox.Exit, 1)
	w.useDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
		p := newDoubleProcess(cmd.ID, d)
		p.exit <- <-exits
		return p, nil
	})
	for _, k := range []struct {
		exit sandbox.Exit
		typ  schemas.EventType
		code int
	}{
		{sandbox.Exit{Reason: schemas.ReasonOOM, Code: 137, Signal: 9}, schemas.TypeProcessExited, 137},
		{sandbox.Exit{Reason: schemas.ReasonKilled, Code: 143, Signal: 15}, schemas.TypeProcessExited, 143},
		{sandbox.Exit{Reason: schemas.ReasonLost, Code: -1}, schemas.TypeProcessLost, schemas.ExitSluiceFailed},
		{sandbox.Exit{Reason: schemas.ReasonTimedOut, Code: 124, Signal: 9}, schemas.TypeProcessExited, 124},
	} {
		exits <- k.exit
		cmd := command(string(k.exit.Reason), sh(":"))
		r := c.exec(cmd)
		equal(t, "reason", r.Reason, k.exit.Reason)
		equal(t, "exit code", r.ExitCode, k.code)
		equal(t, "success", r.Success, false)
		equal(t, "has an error", r.Error != nil, k.typ == schemas.TypeProcessLost)
		c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, k.typ)
	}
}

func TestFailedStartReportsWhetherTheProcessMayHaveRun(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) {
		cfg.Timeouts().Start = 200 * time.Millisecond
		cfg.Timeouts().Gone = 20 * time.Millisecond
	})
	for i, k := range []struct {
		name   string
		start  startFunc // nil without a sandbox
		reason schemas.Reason
		code   schemas.Code
		exit   int
	}{
		{"no sandbox", nil, schemas.ReasonRejected, schemas.CodeUnavailable, 125},
		{"a sandbox that is there says no", func(context.Context, *double, sandbox.Command) (sandbox.Process, error) {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "no: %w", sandbox.ErrRefused)
		}, schemas.ReasonRejected, schemas.CodeUnavailable, 125},
		// Promises 12: it must not be rejected, because a rejected command runs again.
		{"a sandbox that is there does not say whether it started", func(context.Context, *double, sandbox.Command) (sandbox.Process, error) {
			return nil, schemas.Errorf(schemas.CodeUnavailable, "no")
		}, schemas.ReasonLost, schemas.CodeLost, 125},
		{"a sandbox ends in the middle of it", func(_ context.Context, d *double, _ sandbox.Command) (sandbox.Process, error) {
			d.end()
			return nil, schemas.Errorf(schemas.CodeUnavailable, "no")
		}, schemas.ReasonLost, schemas.CodeLost, 125},
		{"a start that hangs", func(ctx context.Context, d *double, _ sandbox.Command) (sandbox.Process, error) {
			<-ctx.Done()
			d.end()
			return nil, ctx.Err()
		}, schemas.ReasonLost, schemas.CodeLost, 125},
		{"the command's own fault", func(_ context.Context, d *double, _ sandbox.Command) (sandbox.Process, error) {
			d.end()
			return nil, &sandbox.StartError{Code: 126, Message: "not executable"}
		}, schemas.ReasonRejected, schemas.CodeInvalidArgument, 126},
	} {
		w.useDouble(k.start)
		if k.start == nil {
			w.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
				return nil, schemas.Errorf(schemas.CodeUnavailable, "no docker")
			}
		}
		r := c.exec(&schemas.Command{SpecVersion: "1", Op: "exec", Thread: fmt.Sprintf("t%d", i), Key: "k", Exec: &schemas.Exec{Command: "sh"}})
		wantFields(t, r, schemas.Result{Reason: k.reason, ExitCode: k.exit, Error: coded(k.code)})
	}
}

func TestSafeRetryUsesANewSandbox(t *testing.T) {
	c, w := newRig(t)
	create := w.provider.create
	first := true
	w.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		if !first {
			return create(ctx, spec)
		}
		first = false
		return newDouble(func(_ context.Context, d *double, _ sandbox.Command) (sandbox.Process, error) {
			d.end()
			return nil, schemas.Errorf(schemas.CodeUnavailable, "it ended")
		}), nil
	}
	e := sh("echo ran")
	e.Retry = schemas.RetrySafe
	wantFields(t, c.exec(command("k", e)), schemas.Result{Stdout: "ran\n"})
}

func TestLostProcessRunsAgainOnlyWithSafeRetry(t *testing.T) {
	c, w := newRig(t)
	// It reads a line first, so that the supervisor reports the start before it dies.
	script := `echo ran >>ran-$1; test $(wc -l <ran-$1) -gt 1 || { read go; kill -9 $PPID; sleep 300; }; echo on`
	for _, retry := range []schemas.Retry{schemas.RetryNever, schemas.RetrySafe} {
		e := sh(script)
		e.Args = append(e.Args, "sh", string(retry))
		e.Retry = retry
		e.StdinOpen = true
		cmd := command(string(retry), e)
		call := c.start(cmd)
		_ = w.feed(processOf(cmd), 0, "go\n", true) // its sandbox may be gone before it has answered
		r := c.end(call)
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonLost})
		made := w.provider.sandboxes()
		<-made[len(made)-1].Done()
		r = c.exec(cmd)
		if retry == schemas.RetryNever {
			wantFields(t, r, schemas.Result{Reason: schemas.ReasonLost})
			c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessLost)
			continue
		}
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonExited, Stdout: "on\n"})
		got := c.records(r.Process)
		if n := len(got); n < 5 || !slices.Contains(got, schemas.TypeProcessLost) ||
			!slices.Equal(got[n-3:], []schemas.EventType{schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited}) {
			t.Errorf("records are %v, want lost, and then a whole second run", got)
		}
	}
}

func TestKillBeforeTheStartStartsNothing(t *testing.T) {
	c, w := newRig(t)
	began, goOn := w.provider.hold()
	killed, other := command("k1", sh("echo ran >ran")), command("k2", sh("ls"))
	call := c.send(killed)
	<-began
	second := c.send(other) // waits for the same sandbox
	c.must(w.control(processOf(killed), schemas.Control{Kill: &schemas.KillRequest{}}))
	r := c.end(call)
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 137, Signal: 9})
	equal(t, "success", r.Success, false)
	c.wantRecords(processOf(killed), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
	close(goOn)
	r = c.end(second)
	wantFields(t, r, schemas.Result{Success: true})
	equal(t, "stdout", r.Stdout, "")
}

func TestSignalBeforeTheStartIsDeliveredAfterIt(t *testing.T) {
	c, w := newRig(t)
	began, goOn := w.provider.hold()
	cmd := command("k", schemas.Exec{Command: "sleep", Args: []string{"300"}})
	call := c.send(cmd)
	<-began
	for range run.MaxSignals {
		c.must(w.control(processOf(cmd), schemas.Control{Signal: &schemas.SignalRequest{Signal: "USR1"}}))
	}
	testkit.WantCode(t, w.control(processOf(cmd), schemas.Control{Signal: &schemas.SignalRequest{Signal: "INT"}}), schemas.CodeUnavailable)
	close(goOn)
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled, Signal: 10})
}

func TestKillDoesNotWaitForASignal(t *testing.T) {
	c, w := newRig(t)
	inSignal := make(chan struct{})
	w.useDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
		p := newDoubleProcess(cmd.ID, d)
		p.signal = func() error {
			close(inSignal)
			<-p.killed
			return schemas.Errorf(schemas.CodeNotFound, "it ended")
		}
		return p, nil
	})
	cmd := command("k", sh(":"))
	call := c.start(cmd)
	signalled := make(chan error, 1)
	go func() {
		signalled <- w.control(processOf(cmd), schemas.Control{Signal: &schemas.SignalRequest{Signal: "2"}})
	}()
	<-inSignal
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{}}))
	testkit.WantCode(t, <-signalled, schemas.CodeNotFound)
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
}
