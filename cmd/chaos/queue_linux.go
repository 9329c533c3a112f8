package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/history"
	"github.com/sluice-dev/sluice/schemas"
)

// queue publishes a few commands of one thread on cmd, one after the other, as a client in another language does.
func (k *caller) queue() {
	thread := k.thread()
	var group sync.WaitGroup
	for range 1 + k.rng.IntN(4) {
		s := k.script()
		o, ok := k.publish(k.sending, s.op(s.exec(thread, k.key(), false, false)))
		if !ok {
			break
		}
		group.Go(func() { k.await(o) })
	}
	group.Wait()
}

// cancelQueued publishes a command on cmd and cancels it there, in one of three cases before CMD has it.
func (k *caller) cancelQueued() {
	s := &script{body: "echo begun; sleep 4; echo ended", stdout: []byte("begun\nended\n")}
	op := s.op(s.exec(k.thread(), k.key(), false, false))
	op.Stopped = true
	early := k.rng.IntN(3) == 0
	var acked time.Time
	if early {
		acked = k.publishCancel(op.Command)
	}
	o, ok := k.publish(k.sending, op)
	if !ok {
		return
	}
	if !early && pause(k.sending, time.Duration(k.rng.IntN(200))*time.Millisecond) {
		acked = k.publishCancel(op.Command)
	}
	k.journal.change(func() { o.Canceled = acked })
	k.await(o)
}

// publishCancel cancels a command until the cancel is acked, and returns when that was.
func (c *clients) publishCancel(cmd *schemas.Command) time.Time {
	ref := schemas.ProcessRef{Tenant: schemas.DefaultTenant, Thread: cmd.Thread, Process: schemas.ProcessID(schemas.DefaultTenant, cmd.Thread, cmd.Key)}
	for c.waiting.Err() == nil {
		if c.conns[0].Caller().Cancel(c.waiting, ref, cmd.Fingerprint()) == nil {
			return time.Now()
		}
		pause(c.waiting, 100*time.Millisecond)
	}
	return time.Time{}
}

// publish publishes a command on cmd until it is acked. ok is false without an ack: the command may be queued.
func (c *clients) publish(ctx context.Context, o history.Op) (_ *history.Op, ok bool) {
	o.Durable = true
	sent := c.journal.open(o)
	body, err := schemas.EncodeCommand(o.Command)
	if err != nil {
		panic(err) // a fault of this program
	}
	subject := fmt.Sprintf("sluice.v1.%s.%s.cmd.%s.exec", schemas.DefaultCell, schemas.DefaultTenant, o.Command.Thread)
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		ack, err := c.cell.js.PublishMsg(try, &nats.Msg{Subject: subject, Data: body})
		cancel()
		if err == nil {
			c.journal.change(func() { sent.Queued, sent.Acked = ack.Sequence, time.Now() })
			return sent, true
		}
		// It may be stored before the one that is acked later: its place in the order is not known.
		c.journal.change(func() { sent.Durable = false })
		pause(ctx, 100*time.Millisecond)
	}
	c.journal.answer(sent, nil, schemas.Errorf(schemas.CodeUnavailable, "not queued"))
	return nil, false
}

// await reads the record of a process until it has ended.
func (c *clients) await(o *history.Op) {
	subject := fmt.Sprintf("sluice.v1.%s.%s.evt.%s.%s.process.*", schemas.DefaultCell, schemas.DefaultTenant, o.Thread, o.Process)
	for {
		r, err := c.record(c.waiting, subject)
		if err == nil && r != nil {
			c.journal.answer(o, r, nil)
			return
		}
		if !pause(c.waiting, 500*time.Millisecond) {
			return
		}
	}
}

// record is the result of a process that has ended, nil while it has not.
func (c *clients) record(ctx context.Context, subject string) (*schemas.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	stream, err := c.cell.js.Stream(ctx, streamName("EVT"))
	if err != nil {
		return nil, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return nil, err
	}
	ev, err := schemas.DecodeEvent(m.Data)
	if err != nil || !ev.Type.Terminal() {
		return nil, err
	}
	var r schemas.Result
	return &r, ev.Decode(&r)
}

// flood queues commands of many threads at once, more than the workers have room for.
func (c *clients) flood(ctx context.Context, f fault) {
	rng := rand.New(rand.NewPCG(f.target, 0))
	for i := range 50 + rng.IntN(150) {
		word := fmt.Sprintf("flood-%x-%d", f.target, i)
		s := &script{body: "echo " + word, stdout: []byte(word + "\n")}
		o, ok := c.publish(ctx, s.op(s.exec(fmt.Sprint("t", rng.IntN(threads)), word, false, false)))
		if !ok {
			return
		}
		c.flooded.Go(func() { c.await(o) })
	}
}
