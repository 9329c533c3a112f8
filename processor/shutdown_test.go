package processor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestShutdownEndsRecordsAndAnswersProcesses(t *testing.T) {
	for _, k := range []struct {
		atTERM string
		grace  time.Duration
		want   schemas.Result
	}{
		{"echo bye; exit 5", time.Minute, schemas.Result{Stdout: "on\nbye\n", ExitCode: 5, Reason: schemas.ReasonExited}},
		{"", 300 * time.Millisecond, schemas.Result{Reason: schemas.ReasonKilled, Signal: 9, Stdout: "on\n"}}, // it ignores SIGTERM
	} {
		c, w := newRig(t, func(cfg *processor.Config) { cfg.StopGrace = k.grace })
		cmd := command("k", sh("trap '"+k.atTERM+"' TERM; echo on; while :; do sleep 0.05; done"))
		call := c.send(cmd)
		c.output(processOf(cmd), "on")
		w.stop()
		c.must(w.err)
		wantFields(t, c.end(call), k.want)
		c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
		for _, sb := range w.provider.sandboxes() {
			select {
			case <-sb.Done():
			default:
				t.Error("a sandbox has not ended")
			}
		}
		// Nothing is left to recover.
		equal(t, "registered workers", len(c.workers()), 0)
		alive, err := c.conn.LeaseAlive(c.ctx, "w1")
		c.must(err)
		equal(t, "lease alive", alive, false)
	}
}

func TestCommandDeclinedAtShutdownRunsOnTheNextWorker(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) { cfg.StopGrace = time.Minute })
	running := command("k1", sh("trap 'echo term; read line; exit 0' TERM; echo on; while :; do sleep 0.05; done"))
	running.Exec.StdinOpen = true
	first := c.start(running, "on")
	w.cancel()
	c.output(processOf(running), "term") // it is shutting down, and waits
	late := command("k2", sh("echo late"))
	call := c.send(late)
	equal(t, "queued while the worker shuts down", call.Queued(), true)
	c.must(w.control(processOf(running), schemas.Control{Stdin: &schemas.StdinPiece{End: true}}))
	w.stop()
	wantFields(t, c.end(first), schemas.Result{Reason: schemas.ReasonExited})
	c.worker("w2")
	wantFields(t, c.end(call), schemas.Result{Stdout: "late\n", Worker: "w2"})
}

func TestShutdownDoesNotWaitForASandboxThatDoesNotAnswer(t *testing.T) {
	c, w := newRig(t, hasty)
	w.useDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
		p := newDoubleProcess(cmd.ID, d)
		p.mortal = false
		return p, nil
	})
	cmd := command("k", sh(":"))
	call := c.start(cmd)
	w.stop()
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonLost})
}

func TestShutdownDoesNotWaitForASandboxThatIsNeverReady(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) { cfg.StopGrace = 100 * time.Millisecond })
	began := make(chan struct{})
	w.provider.create = func(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	cmd := command("k", sh(":"))
	call := c.send(cmd)
	<-began
	w.stop()
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
}

func TestUnrecordedEndIsAnsweredAndLeftToTheNextIncarnation(t *testing.T) {
	c := newCell(t)
	full := schemas.Errorf(schemas.CodeLimitExceeded, "no space left")
	w := c.worker("w1", hasty, func(cfg *processor.Config) {
		cfg.Timeouts().Answer, cfg.Timeouts().Record = time.Nanosecond, time.Hour
	}, failRecords(func(ev *schemas.Event) error {
		if ev.Type == schemas.TypeProcessExited {
			return full
		}
		return nil
	}))
	cmd := command("k", sh("echo true; exit 3"))
	_, answers := w.deliver(cmd, true, 1)
	r := c.terminal(answers)
	wantFields(t, r, schemas.Result{ExitCode: 3, Stdout: "true\n", Error: coded(schemas.CodeLimitExceeded)})
	// Until it is on record the process counts as running.
	v, _ := w.deliver(cmd, true, 1)
	equal(t, "action", v.Action, schemas.ActionDone)
	equal(t, "idle", w.idleNow(), false)
	wantFields(t, c.exec(command("other", schemas.Exec{Command: "no-such-program"})), schemas.Result{Reason: schemas.ReasonRejected})
	w.stop()
	if got := w.log.of("command_failed"); len(got) != 2 || got[1]["error"] == nil && got[0]["error"] == nil {
		t.Fatalf("command_failed lines are %v, want 2, one with an error", got)
	}
	equal(t, "registered workers", len(c.workers()), 1) // the one whose record is missing
	c.worker("w1")
	last, err := c.conn.Last(c.ctx, "default", "t", processOf(cmd))
	c.must(err)
	equal(t, "last record", last.Type, schemas.TypeProcessLost)
}

func TestEndIsRecordedWhenTheAckOfTheStartWasLost(t *testing.T) {
	c, _ := newRig(t, func(cfg *processor.Config) { cfg.Records = &failing{Records: cfg.Records, forgetful: true} })
	r := c.exec(command("k", sh("echo on")))
	equal(t, "stdout", r.Stdout, "on\n")
	equal(t, "error", r.Error, nil)
	c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

func TestUnrecordedAcceptanceRunsNothing(t *testing.T) {
	c := newCell(t)
	fails := true
	w := c.worker("w1", failRecords(func(*schemas.Event) error {
		if fails {
			return schemas.Errorf(schemas.CodeLimitExceeded, "no space left")
		}
		return nil
	}))
	cmd := command("k", sh("echo ran >>ran; wc -l <ran"))
	w.wantAnswer(cmd, false, 1, schemas.ActionDone, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeLimitExceeded)})
	v, answers := w.deliver(cmd, true, 1)
	equal(t, "action", v.Action, schemas.ActionLimit)
	equal(t, "answers", len(answers), 0)
	equal(t, "idle", w.idleNow(), true)
	c.wantRecords(processOf(cmd))
	fails = false
	w.wantAnswer(cmd, true, 2, schemas.ActionDone, schemas.Result{Stdout: "1\n"})
}

// failing are records whose writes may fail.
type failing struct {
	processor.Records
	fails     func(*schemas.Event) error
	forgetful bool // the ack of an asynchronous record is lost
}

// failRecords configures a worker with records whose synchronous writes fail as the function says.
func failRecords(fails func(*schemas.Event) error) func(*processor.Config) {
	return func(cfg *processor.Config) { cfg.Records = &failing{Records: cfg.Records, fails: fails} }
}

func (f *failing) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	if f.fails != nil {
		if err := f.fails(ev); err != nil {
			return 0, err
		}
	}
	return f.Records.Append(ctx, ev, after)
}

func (f *failing) AppendAsync(ev *schemas.Event, after uint64) (func(context.Context) (uint64, error), error) {
	wait, err := f.Records.AppendAsync(ev, after)
	if err != nil || !f.forgetful {
		return wait, err
	}
	return func(ctx context.Context) (uint64, error) {
		_, err := wait(ctx)
		return 0, errors.Join(err, schemas.ErrDeadlineExceeded)
	}, nil
}
