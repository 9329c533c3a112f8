package processor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// A worker dies in mid-message, and comes back: the message ends with its whole answer, and what follows it happens once.
func TestAMessageGoesOnAfterItsWorkerWasKilled(t *testing.T) {
	c, before, after := newCell(t), &hooks{}, &hooks{}
	recipe := held(`echo "one"`)
	dead := c.worker("w1", hasty, talking(recipe, before))
	cmd, waits := message("1", "1"), message("2", "2")
	call := c.send(cmd)
	c.output(processOf(cmd), "one")
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	waiting := c.send(waits)
	dead.crash()

	w := c.again(dead, talking(recipe, after))
	c.awaitLine(w, "process_resumed")
	// It never had its turn, and whoever sent it decides.
	if r := c.end(waiting); r.Reason != schemas.ReasonLost {
		t.Errorf("%+v", r)
	}
	next := message("3", "3")
	third := c.send(next)
	c.file("go-3")
	c.wantRecords(processOf(next), schemas.TypeProcessAccepted)
	c.file("go-1")
	if r := c.end(call); r.Stdout != "one\nanswer to 1\n" || !r.Success {
		t.Errorf("%+v", r)
	}
	if r := c.end(third); r.Stdout != "one\nanswer to 3\n" {
		t.Errorf("%+v", r)
	}
	c.streamFinish(next)
	if got := before.sequence(cmd, waits); got != "message 1" {
		t.Errorf("before: %s", got)
	}
	if got := after.sequence(cmd, waits, next); got != "stream_finish 1, message 3, stream_finish 3" {
		t.Errorf("after: %s", got)
	}
	if m := after.of(schemas.PhaseStreamFinish)[0].data.Message; m.Text != "one\nanswer to 1\n" || m.User != "ann" || m.Process != processOf(cmd) {
		t.Errorf("%+v", m)
	}
	if got := c.read("order"); got != "begin 1\nend 1\nbegin 3\nend 3\n" {
		t.Errorf("%q", got)
	}
}

// A worker dies between an answer's end and what follows it: it comes back, and that is done.
func TestWhatFollowsAnAnswerSurvivesItsWorker(t *testing.T) {
	c, before, after := newCell(t), &hooks{}, &hooks{}
	recipe := held("echo one")
	begun, release := make(chan struct{}), make(chan struct{})
	before.set(func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseStreamFinish {
			close(begun)
			<-release
		}
		return nil, nil
	})
	dead := c.worker("w1", hasty, talking(recipe, before))
	defer close(release)
	cmd, next := message("1", "1"), message("2", "2")
	call := c.send(cmd)
	c.awaitType(processOf(cmd), schemas.TypeProcessStarted)
	c.file("go-1")
	c.file("go-2")
	c.end(call)
	<-begun
	dead.crash()

	w := c.again(dead, talking(recipe, after))
	if r := c.exec(next); !r.Success {
		t.Errorf("%+v", r)
	}
	if f := c.streamFinish(cmd); f.Reason != schemas.ReasonExited || len(f.Failed) != 0 {
		t.Errorf("%+v", f)
	}
	c.streamFinish(next)
	if got := after.sequence(cmd, next); got != "stream_finish 1, message 2, stream_finish 2" {
		t.Error(got)
	}
	if m := after.of(schemas.PhaseStreamFinish)[0].data.Message; m.Text != "one\nanswer to 1\n" || m.User != "ann" || m.Reason != schemas.ReasonExited {
		t.Errorf("%+v", m)
	}
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
	c.awaitForgotten(w)
}

// awaitForgotten waits until the sandbox of thread t holds no process any more.
func (c *cell) awaitForgotten(w *rig) {
	c.t.Helper()
	a, ok := w.threads[threadKey(schemas.DefaultTenant, "t")].making.sb.(sandbox.Attached)
	if !ok {
		c.t.Fatal("its sandbox cannot be asked")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		held, err := a.Held(c.ctx)
		c.must(err)
		if len(held) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.t.Fatalf("it holds %+v", held)
		}
	}
}

func TestAShutdownEndsWhatWaitsForItsTurn(t *testing.T) {
	c, h := newCell(t), &hooks{}
	w := c.worker("w1", hasty, talking(held("echo on"), h))
	one, two := message("1", "1"), message("2", "2")
	first := c.send(one)
	c.output(processOf(one), "on")
	second := c.send(two)
	w.stop()
	if w.err != nil {
		t.Error(w.err)
	}
	for _, r := range []*schemas.Result{c.end(first), c.end(second)} {
		if r.Reason != schemas.ReasonKilled {
			t.Errorf("%+v", r)
		}
	}
	c.wantRecords(processOf(two), schemas.TypeProcessAccepted, schemas.TypeProcessExited)
	if got := h.sequence(one, two); got != "message 1, stream_finish 1" {
		t.Error(got)
	}
}

func TestASessionThatEndsEndsItsMessagesFirst(t *testing.T) {
	for _, remove := range []bool{false, true} {
		c, h := newCell(t), &hooks{}
		c.worker("w1", talking(held("echo on"), h))
		one, two := message("1", "1"), message("2", "2")
		first := c.send(one)
		c.output(processOf(one), "on")
		second := c.send(two)
		grace := int64(0)
		if _, err := c.stop(schemas.StopRequest{GraceMS: &grace, Delete: remove}); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*schemas.Result{c.end(first), c.end(second)} {
			if r.Reason != schemas.ReasonKilled {
				t.Errorf("%+v", r)
			}
		}
		var all []schemas.Phase
		for _, call := range h.calls {
			all = append(all, call.data.Phase)
		}
		if len(all) != 4 || all[2] != schemas.PhaseStreamFinish || all[3] != schemas.PhaseTerminate {
			t.Errorf("%v", all)
		}
		finished, ended := c.awaitType(processOf(one), schemas.TypeStreamFinished), c.awaitTold(schemas.TypeSessionTerminated)
		if finished.Seq > ended.Seq {
			t.Errorf("%d is told after %d", finished.Seq, ended.Seq)
		}
		if _, _, err := c.conn.Session(c.ctx, schemas.DefaultTenant, "t"); !errors.Is(err, schemas.ErrNotFound) {
			t.Error(err)
		}
		// The thread begins anew, with nobody ahead.
		three := message("3", "3")
		third := c.send(three)
		c.output(processOf(three), "on")
		c.file("go-3")
		if r := c.end(third); !r.Success {
			t.Errorf("%+v", r)
		}
	}
}

// A hook that holds a message up is cut short by its kill, and the next message has its turn.
func TestAMessageIsKilledWhileItsHooksRun(t *testing.T) {
	c, h := newCell(t), &hooks{}
	w := c.worker("w1", talking(agent("cat"), h))
	begun := make(chan struct{})
	h.set(func(ctx context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
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
	if r := c.end(first); r.Reason != schemas.ReasonKilled || r.ExitCode != 137 {
		t.Errorf("%+v", r)
	}
	if r := c.end(second); r.Stdout != "two" {
		t.Errorf("%+v", r)
	}
	c.streamFinish(cmd)
}

// A worker whose lease is lost leaves the rest of its messages to the thread's owner.
func TestAFencedWorkerSaysNothingMoreOfItsMessages(t *testing.T) {
	c, h := newCell(t), &hooks{}
	recipe := held("echo on")
	w := c.worker("w1", hasty, talking(recipe, h))
	one, two := message("1", "1"), message("2", "2")
	first := c.send(one)
	c.output(processOf(one), "on")
	c.awaitType(processOf(one), schemas.TypeProcessStarted)
	second := c.send(two)
	w.Fence()
	w.stop()
	if got := h.sequence(one, two); got != "message 1" {
		t.Error(got)
	}
	c.wantRecords(processOf(one), schemas.TypeProcessAccepted, schemas.TypeProcessStarted)
	c.wantRecords(processOf(two), schemas.TypeProcessAccepted)
	c.lapse("w1")
	c.worker("w2", soon, talking(recipe, h))
	for _, r := range []*schemas.Result{c.end(first), c.end(second)} {
		if r.Reason != schemas.ReasonLost {
			t.Errorf("%+v", r)
		}
	}
	three := message("3", "3")
	third := c.send(three)
	c.file("go-3")
	if r := c.end(third); !r.Success || r.Worker != "w2" {
		t.Errorf("%+v", r)
	}
}

// A message that could not be accepted holds nobody up.
func TestAMessageThatIsNotAcceptedPassesItsTurnOn(t *testing.T) {
	c, h := newCell(t), &hooks{}
	two := message("2", "2")
	w := c.worker("w1", talking(held(":"), h), func(cfg *Config) {
		cfg.Records = &failing{Records: cfg.Records, fails: func(ev *schemas.Event) error {
			if ev.Process == processOf(two) {
				return schemas.Errorf(schemas.CodeUnavailable, "no space left")
			}
			return nil
		}}
	})
	one, three := message("1", "1"), message("3", "3")
	first := c.send(one)
	c.awaitType(processOf(one), schemas.TypeProcessStarted)
	_, answers := w.deliver(two, false, 1)
	if r := c.terminal(answers); r.Error == nil || r.Error.Code != schemas.CodeUnavailable {
		t.Errorf("%+v", r)
	}
	third := c.send(three)
	c.wantRecords(processOf(three), schemas.TypeProcessAccepted)
	c.file("go-3")
	c.file("go-1")
	c.end(first)
	if r := c.end(third); !r.Success {
		t.Errorf("%+v", r)
	}
}

// A sandbox that cannot be made rejects the message with the cause; the next one is tried.
func TestAMessageWithoutASandbox(t *testing.T) {
	c, h := newCell(t), &hooks{}
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseColdStart {
			return []string{"pull"}, schemas.Errorf(schemas.CodeUnavailable, "the store is away")
		}
		return nil, nil
	})
	c.worker("w1", talking(agent("cat"), h))
	cmd := message("1", "one")
	if r := c.exec(cmd); r.Reason != schemas.ReasonRejected || r.Error == nil || !strings.Contains(r.Error.Message, "the store is away") {
		t.Errorf("%+v %v", r, r.Error)
	}
	if got := h.sequence(cmd); got != "" {
		t.Error(got)
	}
	h.set(nil)
	if r := c.exec(message("2", "two")); r.Stdout != "two" {
		t.Errorf("%+v", r)
	}
}

// Messages keep a session from being taken for idle until the last hook has ended.
func TestASessionIsInUseUntilTheLastHookEnds(t *testing.T) {
	c, h := newCell(t), &hooks{}
	recipe := agent("cat")
	recipe.Session.IdleTimeoutMS = 1
	w := c.worker("w1", func(cfg *Config) { cfg.SweepEvery = time.Hour }, talking(recipe, h))
	begun, release := make(chan struct{}), make(chan struct{})
	h.set(func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
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
	if s := c.session(); s.State == "" {
		t.Errorf("%+v", s)
	}
	close(release)
	c.streamFinish(cmd)
}
