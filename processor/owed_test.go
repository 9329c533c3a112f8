package processor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// ackless are records whose first acceptance gets no ack.
type ackless struct {
	processor.Records
	late bool // the server stores it when the second try is on its way

	mu    sync.Mutex
	tries int
	store func()
}

// Append writes a record, and loses the ack of the first one.
func (a *ackless) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ev.Type != schemas.TypeProcessAccepted {
		return a.Records.Append(ctx, ev, after)
	}
	a.tries++
	if a.tries > 1 {
		if a.store != nil {
			a.store()
		}
		return a.Records.Append(ctx, ev, after)
	}
	store := func() { _, _ = a.Records.Append(context.WithoutCancel(ctx), ev, after) }
	if a.late {
		a.store = store
	} else {
		store()
	}
	return 0, schemas.Errorf(schemas.CodeDeadlineExceeded, "no ack")
}

// Promises 19: the worker owes an end to a process whose acceptance it did not see acked.
func TestAcceptanceWithoutAnAckIsOwed(t *testing.T) {
	for _, v := range []struct {
		name    string
		durable bool
		late    bool
	}{{"direct", false, false}, {"durable", true, false}, {"stored late", true, true}} {
		t.Run(v.name, func(t *testing.T) {
			c := newCell(t)
			w := c.worker("w1", func(cfg *processor.Config) { cfg.Records = &ackless{Records: cfg.Records, late: v.late} })
			cmd := command("k", sh("echo on; exit 3"))
			verdict, answers := w.deliver(cmd, v.durable, 1)
			equal(t, "action", verdict.Action, schemas.ActionRetry)
			if !v.durable {
				r := c.terminal(answers)
				wantFields(t, r, schemas.Result{Error: coded(schemas.CodeUnavailable)})
				if r.Error.Details[schemas.DetailDeclined] == "" {
					t.Error("the command is rejected for good, and runs")
				}
			}
			wantFields(t, c.result(c.awaitType(processOf(cmd), schemas.TypeProcessExited)), schemas.Result{ExitCode: 3})
			c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted, schemas.TypeProcessStarted, schemas.TypeProcessExited)
			verdict, answers = w.deliver(cmd, true, 2)
			equal(t, "action", verdict.Action, schemas.ActionDone)
			wantFields(t, c.terminal(answers), schemas.Result{ExitCode: 3, Stdout: "on\n"})
		})
	}
}

// Promises 19: a worker that lost its lease between the acceptance and the start starts nothing.
func TestNothingStartsWithoutTheLease(t *testing.T) {
	c := newCell(t)
	var lapsed, started atomic.Bool
	w := c.worker("w1", hasty, func(cfg *processor.Config) {
		held := cfg.LeaseHeld
		cfg.LeaseHeld = func() bool { return !lapsed.Load() && held() }
	})
	w.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
		lapsed.Store(true) // as if the worker had been frozen here
		return newDouble(func(_ context.Context, d *double, cmd sandbox.Command) (sandbox.Process, error) {
			started.Store(true)
			return newDoubleProcess(cmd.ID, d), nil
		}), nil
	}
	cmd := command("k", sh(":"))
	v, _ := w.deliver(cmd, true, 1)
	equal(t, "action", v.Action, schemas.ActionDone)
	<-w.Runs().Ended()
	equal(t, "started", started.Load(), false)
	c.wantRecords(processOf(cmd), schemas.TypeProcessAccepted)
}

// behind are records that a replica reads which has only the first one of each process.
type behind struct {
	processor.Records
	stale atomic.Bool
	first atomic.Pointer[schemas.Event]
}

// Append keeps the first acceptance.
func (b *behind) Append(ctx context.Context, ev *schemas.Event, after uint64) (uint64, error) {
	seq, err := b.Records.Append(ctx, ev, after)
	if err == nil && ev.Type == schemas.TypeProcessAccepted {
		first := *ev
		first.Seq = seq
		b.first.CompareAndSwap(nil, &first)
	}
	return seq, err
}

// Last reads the record, or that of the replica.
func (b *behind) Last(ctx context.Context, tenant, thread, process string) (*schemas.Event, error) {
	if b.stale.Load() {
		return b.first.Load(), nil
	}
	return b.Records.Last(ctx, tenant, thread, process)
}

// Promises 19: no loss is recorded on a read that is behind.
func TestNoLossIsRecordedOnAReadThatIsBehind(t *testing.T) {
	c := newCell(t)
	var records *behind
	w := c.worker("w1", func(cfg *processor.Config) {
		records = &behind{Records: cfg.Records}
		cfg.Records = records
	})
	cmd := command("k", sh("exit 3"))
	wantFields(t, c.exec(cmd), schemas.Result{ExitCode: 3})
	records.stale.Store(true)
	v, _ := w.deliver(cmd, true, 1)
	equal(t, "action", v.Action, schemas.ActionRetry)
	records.stale.Store(false)
	v, answers := w.deliver(cmd, true, 2)
	equal(t, "action", v.Action, schemas.ActionDone)
	wantFields(t, c.terminal(answers), schemas.Result{ExitCode: 3})
}
