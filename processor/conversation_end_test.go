package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// A worker is killed during an answer and restarts: the answer is complete, and its hooks run once.
func TestMessageResumesAfterItsWorkerWasKilled(t *testing.T) {
	c, before, after := newCell(t), &hooks{}, &hooks{}
	recipe := held(`echo "one"`)
	dead := c.worker("w1", hasty, talking(recipe, before))
	cmd, waits := message("1", "1"), message("2", "2")
	call := c.start(cmd, "one")
	waiting := c.lineUp(waits)
	dead.crash()

	w := dead.again(talking(recipe, after))
	w.awaitLine("process_resumed")
	// It never had its turn: its caller decides whether to send it again.
	wantFields(t, c.end(waiting), schemas.Result{Reason: schemas.ReasonLost})
	next := message("3", "3")
	third := c.lineUp(next)
	c.file("go-3")
	c.wantRecords(processOf(next), schemas.TypeProcessAccepted)
	c.file("go-1")
	wantFields(t, c.end(call), schemas.Result{Stdout: "one\nanswer to 1\n", Success: true})
	wantFields(t, c.end(third), schemas.Result{Stdout: "one\nanswer to 3\n"})
	c.streamFinish(next)
	equal(t, "hooks before the kill", before.sequence(cmd, waits), "message 1")
	equal(t, "hooks after the kill", after.sequence(cmd, waits, next), "stream_finish 1, message 3, stream_finish 3")
	wantFields(t, after.of(schemas.PhaseStreamFinish)[0].data.Message, schemas.Message{Text: "one\nanswer to 1\n", User: "ann", Process: processOf(cmd)})
	equal(t, "order", c.read("order"), "begin 1\nend 1\nbegin 3\nend 3\n")
}

// A worker is killed between the end of an answer and its hooks: the next incarnation runs them.
func TestHooksAfterAnAnswerRunOnTheNextIncarnation(t *testing.T) {
	c, before, after := newCell(t), &hooks{}, &hooks{}
	recipe := held("echo one")
	begun, release := make(chan struct{}), make(chan struct{})
	before.set(func(_ context.Context, data schemas.HookData, _ string, _ hookExec) ([]string, error) {
		if data.Phase == schemas.PhaseStreamFinish {
			close(begun)
			<-release
		}
		return nil, nil
	})
	dead := c.worker("w1", hasty, talking(recipe, before))
	defer close(release)
	cmd, next := message("1", "1"), message("2", "2")
	call := c.start(cmd)
	c.file("go-1")
	c.file("go-2")
	c.end(call)
	<-begun
	dead.crash()

	w := dead.again(talking(recipe, after))
	wantFields(t, c.exec(next), schemas.Result{Success: true})
	f := c.streamFinish(cmd)
	equal(t, "reason", f.Reason, schemas.ReasonExited)
	equal(t, "failed hooks", len(f.Failed), 0)
	c.streamFinish(next)
	equal(t, "hooks after the kill", after.sequence(cmd, next), "stream_finish 1, message 2, stream_finish 2")
	wantFields(t, after.of(schemas.PhaseStreamFinish)[0].data.Message, schemas.Message{Text: "one\nanswer to 1\n", User: "ann", Reason: schemas.ReasonExited})
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	w.awaitForgotten()
}

// awaitForgotten waits until the sandbox of thread t holds no process.
func (r *rig) awaitForgotten() {
	c := r.cell
	c.t.Helper()
	a, ok := r.Sessions().Find("default", "t").Standing().(sandbox.Attached)
	if !ok {
		c.t.Fatal("the sandbox is not attached")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		held, err := a.Processes(c.ctx)
		c.must(err)
		if len(held) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.t.Fatalf("the sandbox holds %+v, want nothing", held)
		}
	}
}

func TestShutdownEndsQueuedMessages(t *testing.T) {
	c, w, h := newTalk(t, held("echo on"))
	one, two := message("1", "1"), message("2", "2")
	first := c.start(one, "on")
	second := c.lineUp(two)
	w.stop()
	c.must(w.err)
	for _, r := range []*schemas.Result{c.end(first), c.end(second)} {
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonKilled})
	}
	c.wantRecords(processOf(two), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
	equal(t, "hooks", h.sequence(one, two), "message 1, stream_finish 1")
}

func TestSessionEndEndsItsMessagesFirst(t *testing.T) {
	for _, remove := range []bool{false, true} {
		c, _, h := newTalk(t, held("echo on"))
		one, two := message("1", "1"), message("2", "2")
		first := c.start(one, "on")
		second := c.lineUp(two)
		grace := int64(0)
		c.must(errorOf(c.stop(schemas.StopRequest{GraceMS: &grace, Delete: remove})))
		for _, r := range []*schemas.Result{c.end(first), c.end(second)} {
			wantFields(t, r, schemas.Result{Reason: schemas.ReasonKilled})
		}
		var all []schemas.Phase
		for _, call := range h.calls {
			all = append(all, call.data.Phase)
		}
		if len(all) != 4 || all[2] != schemas.PhaseStreamFinish || all[3] != schemas.PhaseTerminate {
			t.Errorf("phases are %v, want stream_finish and terminate as the 3rd and 4th of 4", all)
		}
		finished, ended := c.awaitType(processOf(one), schemas.TypeStreamFinished), c.awaitEvent(schemas.TypeSessionTerminated)
		if finished.Seq > ended.Seq {
			t.Errorf("event %d comes after %d, want before", finished.Seq, ended.Seq)
		}
		c.wantNoSession("t")
		// The thread has a new session, with no message ahead.
		three := message("3", "3")
		third := c.start(three, "on")
		c.file("go-3")
		wantFields(t, c.end(third), schemas.Result{Success: true})
	}
}

// slowlyKilled is a process whose kill returns when over is closed, or a later message has its turn.
type slowlyKilled struct {
	*doubleProcess
	over, turn <-chan struct{}
}

// Kill ends it at once.
func (p *slowlyKilled) Kill(grace time.Duration) error {
	err := p.doubleProcess.Kill(grace)
	select {
	case <-p.over:
	case <-p.turn:
	}
	return err
}

// No message has its turn once its session or its worker ends, though the message before ends while the others are yet to be killed.
func TestEndGivesNoMessageItsTurn(t *testing.T) {
	for name, end := range map[string]func(*cell, *rig) error{
		"session": func(c *cell, _ *rig) error { return errorOf(c.stop(schemas.StopRequest{})) },
		"worker":  func(_ *cell, w *rig) error { w.stop(); return w.err },
	} {
		t.Run(name, func(t *testing.T) {
			c, w, h := newTalk(t, agent("cat"))
			over, turn, ended := make(chan struct{}), make(chan struct{}, 16), make(chan error, 1)
			h.set(func(_ context.Context, data schemas.HookData, _ string, _ hookExec) ([]string, error) {
				if data.Phase == schemas.PhaseMessage && data.Message.Text != "1" {
					turn <- struct{}{}
				}
				return nil, nil
			})
			w.useDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
				return &slowlyKilled{newDoubleProcess(cmd.ID, d), over, turn}, nil
			})
			calls := []*events.Call{c.start(message("1", "1"))}
			for _, key := range []string{"2", "3", "4"} {
				calls = append(calls, c.lineUp(message(key, key)))
			}
			go func() { ended <- end(c, w) }()
			for _, call := range calls[1:] {
				wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
			}
			close(over)
			c.must(<-ended)
			wantFields(t, c.end(calls[0]), schemas.Result{Reason: schemas.ReasonKilled})
			equal(t, "messages that had their turn", len(h.of(schemas.PhaseMessage)), 1)
		})
	}
}

// A kill ends the hook that a message waits for, and the next message has its turn.
func TestKillEndsAMessageWhileItsHooksRun(t *testing.T) {
	c, w, h := newTalk(t, agent("cat"))
	begun := make(chan struct{})
	h.set(func(ctx context.Context, data schemas.HookData, _ string, _ hookExec) ([]string, error) {
		if data.Phase != schemas.PhaseMessage || data.Message.Text != "held" {
			return nil, nil
		}
		close(begun)
		<-ctx.Done()
		return []string{"slow"}, ctx.Err()
	})
	cmd := message("1", "held")
	first := c.send(cmd)
	<-begun
	second := c.send(message("2", "two"))
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{GraceMS: schemas.MaxTimeoutMS}}))
	wantFields(t, c.end(first), schemas.Result{Reason: schemas.ReasonKilled, ExitCode: 137})
	wantFields(t, c.end(second), schemas.Result{Stdout: "two"})
	c.streamFinish(cmd)
}

// A fenced worker leaves its messages to the thread's owner.
func TestFencedWorkerPublishesNothingOfItsMessages(t *testing.T) {
	recipe := held("echo on")
	c, w, h := newTalk(t, recipe, hasty)
	one, two := message("1", "1"), message("2", "2")
	first := c.start(one, "on")
	second := c.lineUp(two)
	w.Fence()
	w.stop()
	equal(t, "hooks", h.sequence(one, two), "message 1")
	c.wantRecords(processOf(one), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	c.wantRecords(processOf(two), schemas.TypeProcessAccepted)
	c.lapse("w1")
	c.worker("w2", soon, talking(recipe, h))
	for _, r := range []*schemas.Result{c.end(first), c.end(second)} {
		wantFields(t, r, schemas.Result{Reason: schemas.ReasonLost})
	}
	three := message("3", "3")
	third := c.send(three)
	c.file("go-3")
	wantFields(t, c.end(third), schemas.Result{Success: true, Worker: "w2"})
}

// A message whose acceptance failed does not hold up the next one.
func TestUnacceptedMessagePassesItsTurnOn(t *testing.T) {
	t.Parallel()
	two := message("2", "2")
	c, w, _ := newTalk(t, held(":"), failRecords(func(ev *schemas.Event) error {
		if ev.Process == processOf(two) {
			return schemas.Errorf(schemas.CodeUnavailable, "no space left")
		}
		return nil
	}))
	one, three := message("1", "1"), message("3", "3")
	first := c.start(one)
	_, answers := w.deliver(two, false, 1)
	wantFields(t, c.terminal(answers), failed(schemas.CodeUnavailable))
	third := c.lineUp(three)
	c.wantRecords(processOf(three), schemas.TypeProcessAccepted)
	c.file("go-3")
	c.file("go-1")
	c.end(first)
	wantFields(t, c.end(third), schemas.Result{Success: true})
}

// A sandbox that cannot be created rejects the message with the cause; the next message tries again.
func TestMessageWithoutASandboxIsRejected(t *testing.T) {
	c, _, h := newTalk(t, agent("cat"))
	h.set(failIn(schemas.PhaseColdStart, "pull", schemas.Errorf(schemas.CodeUnavailable, "the store is away")))
	cmd := message("1", "one")
	r := c.exec(cmd)
	equal(t, "reason", r.Reason, schemas.ReasonRejected)
	wantMessage(t, r.Error, "the store is away")
	equal(t, "hooks", h.sequence(cmd), "")
	h.set(nil)
	wantFields(t, c.exec(message("2", "two")), schemas.Result{Stdout: "two"})
}

// Promises 12: a message that was rejected for a cause that may pass runs when it is sent again, and only then has its finish.
func TestMessageRunsAfterARejectionThatMayPass(t *testing.T) {
	c, _, h := newTalk(t, agent("cat"))
	h.set(failIn(schemas.PhaseMessage, "save", schemas.Errorf(schemas.CodeUnavailable, "the store is away")))
	cmd := message("1", "one")
	wantFields(t, c.exec(cmd), schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeUnavailable)})
	h.set(nil)
	wantFields(t, c.exec(cmd), schemas.Result{Stdout: "one"})
	wantFields(t, c.streamFinish(cmd), schemas.StreamFinish{Reason: schemas.ReasonExited})
}

// A session is not idle until the last hook of its messages has ended.
func TestSessionIsInUseUntilTheLastHookEnds(t *testing.T) {
	recipe := agent("cat")
	recipe.Session.IdleTimeoutMS = 1
	c, w, h := newTalk(t, recipe, func(cfg *processor.Config) { cfg.SweepEvery = time.Hour })
	begun, release := make(chan struct{}), make(chan struct{})
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ hookExec) ([]string, error) {
		if data.Phase == schemas.PhaseStreamFinish {
			close(begun)
			<-release
		}
		return nil, nil
	})
	cmd := message("1", "one")
	c.exec(cmd)
	<-begun
	w.expireIdle(c.ctx)
	c.session() // it fails for a session that has ended; the state of its sandbox is stored later
	close(release)
	c.streamFinish(cmd)
}
