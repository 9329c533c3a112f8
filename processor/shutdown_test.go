package processor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestAShutdownEndsRecordsAndAnswersWhatRuns(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *Config) { cfg.StopGrace = 300 * time.Millisecond })
	// One goes at SIGTERM, one not even then.
	polite := command("k1", sh("trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.05; done"))
	rude := command("k2", sh("trap '' TERM; echo on; while :; do sleep 0.05; done"))
	one, two := c.send(polite), c.send(rude)
	c.output(processOf(polite), "on")
	c.output(processOf(rude), "on")
	w.stop()
	if w.err != nil {
		t.Fatal(w.err)
	}
	if r := c.end(one); r.Stdout != "on\nbye\n" || r.ExitCode != 5 || r.Reason != schemas.ReasonExited {
		t.Errorf("%+v", r)
	}
	if r := c.end(two); r.Reason != schemas.ReasonKilled || r.Signal != 9 || r.Stdout != "on\n" {
		t.Errorf("%+v", r)
	}
	for _, cmd := range []*schemas.Command{polite, rude} {
		c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	}
	for _, sb := range w.stage.sandboxes() {
		select {
		case <-sb.Done():
		default:
			t.Error("a sandbox is left")
		}
	}
	// Nothing is left behind: nobody has to look.
	workers, err := c.conn.Workers(c.ctx)
	c.must(err)
	if len(workers) != 0 {
		t.Errorf("%+v", workers)
	}
	if alive, err := c.conn.LeaseAlive(c.ctx, "w1"); alive || err != nil {
		t.Errorf("the lease: %v %v", alive, err)
	}
}

func TestACommandThatALeavingWorkerDeclinesRunsOnTheNext(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *Config) { cfg.StopGrace = time.Minute })
	running := command("k1", sh("trap 'echo term; read line; exit 0' TERM; echo on; while :; do sleep 0.05; done"))
	running.Exec.StdinOpen = true
	first := c.send(running)
	c.output(processOf(running), "on")
	w.cancel()
	c.output(processOf(running), "term") // it is shutting down, and waits
	late := command("k2", sh("echo late"))
	call := c.send(late)
	if !call.Queued() {
		t.Error("a leaving worker took a command")
	}
	if err := w.control(processOf(running), schemas.Control{Stdin: &schemas.StdinPiece{End: true}}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if r := c.end(first); r.Reason != schemas.ReasonExited {
		t.Fatalf("%+v", r)
	}
	c.worker("w2")
	if r := c.end(call); r.Stdout != "late\n" || r.Worker != "w2" {
		t.Fatalf("%+v", r)
	}
}

func TestAShutdownDoesNotWaitForASandboxThatNoLongerAnswers(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", hasty)
	sb := newDouble("d")
	sb.start = func(_ context.Context, cmd sandbox.Command) (sandbox.Process, error) {
		p := newDoubleProcess(cmd.ID, sb)
		p.mortal = false
		return p, nil
	}
	w.only(func(sandbox.Spec) (sandbox.Sandbox, error) { return sb, nil })
	cmd := command("k", sh(":"))
	call := c.send(cmd)
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	w.stop()
	if r := c.end(call); r.Reason != schemas.ReasonLost {
		t.Fatalf("%+v", r)
	}
}

func TestAShutdownDoesNotWaitForASandboxThatIsNeverReady(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", hasty)
	began := make(chan struct{})
	w.stage.create = func(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	cmd := command("k", sh(":"))
	call := c.send(cmd)
	<-began
	w.stop()
	if r := c.end(call); r.Reason != schemas.ReasonKilled {
		t.Fatalf("%+v", r)
	}
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
}

func TestAnEndThatCannotBeRecordedIsToldAndLeftToTheNextIncarnation(t *testing.T) {
	c := newCell(t)
	full := schemas.Errorf(schemas.CodeLimitExceeded, "no space left")
	w := c.worker("w1", func(cfg *Config) {
		cfg.Records = &failing{Records: cfg.Records, fails: func(ev *schemas.Event) error {
			if ev.Type == schemas.TypeProcessExited {
				return full
			}
			return nil
		}}
		hasty(cfg)
		cfg.patience.answer, cfg.patience.record = time.Nanosecond, time.Hour
	})
	cmd := command("k", sh("echo true; exit 3"))
	_, answers := w.deliver(cmd, true, 1)
	r := c.terminal(answers)
	if r.ExitCode != 3 || r.Stdout != "true\n" || r.Error == nil || r.Error.Code != schemas.CodeLimitExceeded {
		t.Fatalf("%+v", r)
	}
	// Until it is on record the process counts as running.
	if v, _ := w.deliver(cmd, true, 1); v.Action != schemas.ActionDone || w.idleNow() {
		t.Fatalf("%+v", v)
	}
	if r := c.exec(command("other", schemas.Exec{Command: "no-such-program"})); r.Reason != schemas.ReasonRejected {
		t.Fatalf("the worker does nothing else: %+v", r)
	}
	w.stop()
	if got := w.log.of("command_failed"); len(got) != 2 || got[1]["error"] == nil && got[0]["error"] == nil {
		t.Fatalf("%v", got)
	}
	workers, err := c.conn.Workers(c.ctx)
	c.must(err)
	if len(workers) != 1 {
		t.Fatalf("a worker that owes a record signed off: %+v", workers)
	}
	c.worker("w1")
	if last, err := c.conn.Last(c.ctx, "default", "t", processOf(cmd)); err != nil || last.Type != schemas.TypeProcessLost {
		t.Fatalf("%v %v", last, err)
	}
}

func TestAnEndIsRecordedThoughTheAckOfTheStartWasLost(t *testing.T) {
	c := newCell(t)
	c.worker("w1", func(cfg *Config) { cfg.Records = &failing{Records: cfg.Records, forgetful: true} })
	r := c.exec(command("k", sh("echo on")))
	if r.Stdout != "on\n" || r.Error != nil {
		t.Fatalf("%+v", r)
	}
	c.wantRecords(r.Process, schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
}

func TestAnAcceptanceThatCannotBeRecordedRunsNothing(t *testing.T) {
	c := newCell(t)
	fails := true
	w := c.worker("w1", func(cfg *Config) {
		cfg.Records = &failing{Records: cfg.Records, fails: func(*schemas.Event) error {
			if fails {
				return schemas.Errorf(schemas.CodeLimitExceeded, "no space left")
			}
			return nil
		}}
	})
	cmd := command("k", sh("echo ran >>ran; wc -l <ran"))
	v, answers := w.deliver(cmd, false, 1)
	if r := c.terminal(answers); v.Action != schemas.ActionDone || r.Error.Code != schemas.CodeLimitExceeded || r.Reason != schemas.ReasonRejected {
		t.Fatalf("%+v", r)
	}
	if v, answers := w.deliver(cmd, true, 1); v.Action != schemas.ActionRetry || len(answers) != 0 || !w.idleNow() {
		t.Fatalf("%+v", v)
	}
	c.wantRecords(processOf(cmd))
	fails = false
	if v, answers := w.deliver(cmd, true, 2); v.Action != schemas.ActionDone || c.terminal(answers).Stdout != "1\n" {
		t.Fatalf("%+v", v)
	}
}

// failing are records that do not take everything.
type failing struct {
	Records
	fails     func(*schemas.Event) error
	forgetful bool // the ack of an asynchronous record is lost
}

// Append fails where the test says so.
func (f *failing) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	if f.fails != nil {
		if err := f.fails(ev); err != nil {
			return 0, err
		}
	}
	return f.Records.Append(ctx, ev, after)
}

// AppendAsync loses the ack where the test says so.
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
