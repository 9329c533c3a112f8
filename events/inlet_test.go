package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/schemas"
)

// owner is a worker as small as it can be: it accepts what comes, and answers.
type owner struct {
	id    string
	conn  *Conn
	inlet *Inlet
	place func(*owner, string) schemas.PlaceReply
	// judge says what becomes of a command; nil accepts it.
	judge func(*owner, schemas.Delivery) schemas.Verdict
	// obey says what becomes of a control message; nil obeys.
	obey func(schemas.Control) error

	mu   sync.Mutex
	got  []schemas.Delivery
	came chan schemas.Delivery
}

func (w *owner) HandleCommand(_ context.Context, d schemas.Delivery) schemas.Verdict {
	w.mu.Lock()
	w.got = append(w.got, d)
	w.mu.Unlock()
	v := schemas.Verdict{}
	switch {
	case w.judge != nil:
		v = w.judge(w, d)
	case d.Invalid != nil:
		v = schemas.Verdict{Action: schemas.ActionDead, Reason: d.Invalid}
	}
	if v.Action == schemas.ActionDone && d.Command != nil {
		p := schemas.ProcessID(d.Tenant, d.Thread, d.Command.Key)
		_ = w.conn.Answer(d.Inbox, record(d.Thread, p, schemas.TypeProcessAccepted, "a-"+w.id))
		_ = w.conn.Answer(d.Inbox, record(d.Thread, p, schemas.TypeProcessExited, "e-"+w.id))
	}
	w.came <- d
	return v
}

func (w *owner) HandleControl(_ context.Context, ctl schemas.Control, done func(error)) {
	if w.obey != nil {
		done(w.obey(ctl))
		return
	}
	done(nil)
}

func (w *owner) HandleSession(_ context.Context, _ schemas.SessionControl, done func(schemas.SessionReply)) {
	done(schemas.SessionReply{})
}

func (w *owner) HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply {
	if w.place != nil {
		return w.place(w, req.Thread)
	}
	if err := w.inlet.Own(ctx, tenant, req.Thread); err != nil {
		return schemas.PlaceReply{Error: schemas.AsError(err)}
	}
	return schemas.PlaceReply{Worker: w.id}
}

// work starts a worker on a connection of its own; stop ends it.
func work(t *testing.T, n *node, id string, shape func(*owner)) (w *owner, stop func()) {
	t.Helper()
	c := n.connect()
	w = &owner{id: id, conn: c, inlet: c.NewInlet(id), came: make(chan schemas.Delivery, 4096)}
	if shape != nil {
		shape(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.inlet.Run(ctx, w, func() { close(ready) }) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return w, stop
}

func command(thread, key string) *schemas.Command {
	return &schemas.Command{SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: thread, Key: key, Exec: &schemas.Exec{Command: "true"}}
}

// ending waits for a call's end and returns the ids of the events told.
func ending(t *testing.T, call *Call) string {
	t.Helper()
	ids := ""
	for !call.Ended() {
		ev, err := call.Next(patient(t))
		must(t, err)
		ids += ev.ID + " "
	}
	return strings.TrimSpace(ids)
}

func queueRaw(t *testing.T, c *Conn, subject string, header nats.Header, body []byte) {
	t.Helper()
	_, err := c.js.PublishMsg(patient(t), &nats.Msg{Subject: subject, Header: header, Data: body})
	must(t, err)
}

func (w *owner) next(t *testing.T) schemas.Delivery {
	t.Helper()
	select {
	case d := <-w.came:
		return d
	case <-patient(t).Done():
		t.Fatal("nothing came to worker " + w.id)
		panic("unreachable")
	}
}

func TestCommandFindsItsWay(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		n, c := connected(t, listen)
		w, _ := work(t, n, "w1", nil)
		for i := range 3 { // the first has the thread placed, the others go straight to its owner
			call, err := c.Send(patient(t), "default", command("t", fmt.Sprint(i)))
			must(t, err)
			if call.Queued() {
				t.Error("queued although a worker is there")
			}
			if got := ending(t, call); got != "a-w1 e-w1" {
				t.Errorf("events %q", got)
			}
			call.Close()
			if d := w.next(t); d.Durable || d.Attempt != 1 || d.Command.Key != fmt.Sprint(i) || d.Tenant != "default" {
				t.Errorf("delivery %+v", d)
			}
		}
		w.inlet.Disown("default", "t")
		call, err := c.Send(patient(t), "default", command("t", "again"))
		must(t, err)
		defer call.Close()
		ending(t, call)
	})
}

func TestCommandWaitsForAWorker(t *testing.T) {
	n, c := connected(t, true)
	var calls []*Call
	for i := range 20 {
		call, err := c.Send(patient(t), "default", command("t", fmt.Sprint(i)))
		must(t, err)
		defer call.Close()
		if !call.Queued() {
			t.Error("not queued although there is no worker")
		}
		calls = append(calls, call)
	}
	gone, err := c.Send(patient(t), "default", command("t", "gone"))
	must(t, err)
	gone.Close() // a caller that has gone takes nothing with it
	w, _ := work(t, n, "w1", nil)
	for _, call := range calls {
		if got := ending(t, call); got != "a-w1 e-w1" {
			t.Errorf("events %q", got)
		}
	}
	for i := range 20 {
		if d := w.next(t); !d.Durable || d.Command.Key != fmt.Sprint(i) {
			t.Errorf("delivery %d: %+v", i, d)
		}
	}
	if d := w.next(t); d.Command.Key != "gone" {
		t.Errorf("delivery %+v", d)
	}
}

func TestRetryKeepsTheOrder(t *testing.T) {
	n, c := connected(t, false)
	for i := range 5 {
		_, err := c.Send(patient(t), "default", command("t", fmt.Sprint(i)))
		must(t, err)
	}
	tries := map[string]int{}
	w, _ := work(t, n, "w1", func(w *owner) {
		w.judge = func(_ *owner, d schemas.Delivery) schemas.Verdict {
			if tries[d.Command.Key]++; tries[d.Command.Key] != d.Attempt {
				t.Errorf("attempt %d of %s says it is %d", tries[d.Command.Key], d.Command.Key, d.Attempt)
			}
			if d.Attempt == 1 && d.Command.Key == "1" {
				return schemas.Verdict{Action: schemas.ActionRetry}
			}
			return schemas.Verdict{}
		}
	})
	keys := ""
	for range 6 {
		keys += w.next(t).Command.Key
	}
	if keys != "011234" {
		t.Errorf("came as %s", keys)
	}
}

func TestDeadLetters(t *testing.T) {
	n, c := connected(t, false)
	good, err := schemas.EncodeCommand(command("t", "k"))
	must(t, err)
	subject := c.Subjects.Command("default", "t", schemas.OpExec)
	bad := []struct {
		subject string
		body    []byte
		code    schemas.Code
	}{
		{subject, []byte("{"), schemas.CodeInvalidArgument},
		{subject, nil, schemas.CodeInvalidArgument},
		{subject, []byte(`{"specversion":"1","` + strings.Repeat("x", 700<<10) + `":1}`), schemas.CodeInvalidArgument},
		{subject, bytes.Repeat([]byte("x"), schemas.MaxCommandBytes+1), schemas.CodeTooLarge},
		{c.Subjects.Command("default", "other", schemas.OpExec), good, schemas.CodeInvalidArgument},
		{c.Subjects.Command("default", "t", "nonsense"), good, schemas.CodeInvalidArgument},
		{c.Subjects.Command("default", "b$d", schemas.OpExec), good, schemas.CodeInvalidArgument},
		{c.Subjects.Command("t€nant", "t", schemas.OpExec), good, schemas.CodeInvalidArgument},
	}
	for _, b := range bad {
		queueRaw(t, c, b.subject, nil, b.body)
	}
	queueRaw(t, c, subject, nil, good)
	w, stop := work(t, n, "w1", nil)
	codes := map[schemas.Code]int{}
	for range len(bad) + 1 {
		d := w.next(t)
		if d.Invalid == nil {
			continue
		}
		codes[d.Invalid.Code]++
		if len(d.Invalid.Message) > 2*maxReason {
			t.Errorf("a reason of %d bytes", len(d.Invalid.Message))
		}
	}
	if codes[schemas.CodeInvalidArgument] != len(bad)-1 || codes[schemas.CodeTooLarge] != 1 {
		t.Errorf("codes %v", codes)
	}
	stop()
	// An ack is not waited for: it may still be on its way.
	for ctx := patient(t); ; {
		dlq, err := c.js.Stream(ctx, c.names.dlq)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		must(t, err)
		cmd, err := c.js.Stream(ctx, c.names.cmd)
		must(t, err)
		if dead, left := dlq.CachedInfo().State.Msgs, cmd.CachedInfo().State.Msgs; dead == uint64(len(bad)) && left == 0 {
			break
		}
	}
	_, err = c.js.PublishMsg(patient(t), &nats.Msg{Subject: subject, Data: make([]byte, 900<<10)})
	wantCode(t, wrap(err, "queue"), schemas.CodeTooLarge)
}

// The dispatcher, which is one of all workers, hands a command to the worker that owns its thread.
func TestDurableCommandIsForwarded(t *testing.T) {
	n, c := connected(t, true)
	declines := 1
	keeper, _ := work(t, n, "keeper", func(w *owner) {
		w.judge = func(_ *owner, d schemas.Delivery) schemas.Verdict {
			if d.Durable {
				return schemas.Verdict{Action: schemas.ActionForward, To: "other"}
			}
			if declines--; declines >= 0 {
				return schemas.Verdict{Action: schemas.ActionRetry}
			}
			return schemas.Verdict{}
		}
	})
	must(t, keeper.inlet.Own(patient(t), "default", "t"))
	body, err := schemas.EncodeCommand(command("t", "k"))
	must(t, err)
	// Without an inbox too: whoever queued it may not care for the answer.
	queueRaw(t, c, c.Subjects.Command("default", "t", schemas.OpExec), nil, body)
	ways := ""
	for range 4 {
		if d := keeper.next(t); d.Durable {
			ways += fmt.Sprint("durable", d.Attempt, " ")
		} else {
			ways += fmt.Sprintf("fast%q ", d.Inbox)
		}
	}
	if ways != `durable1 fast"" durable2 fast"" ` {
		t.Errorf("it went %s", ways)
	}
}

func TestAnotherWorkerTakesOver(t *testing.T) {
	n, c := connected(t, true)
	a, stopA := work(t, n, "a", nil)
	b, _ := work(t, n, "b", nil)
	for i := range 8 {
		body, err := schemas.EncodeCommand(command(fmt.Sprint("t", i), "k"))
		must(t, err)
		queueRaw(t, c, c.Subjects.Command("default", fmt.Sprint("t", i), schemas.OpExec), nil, body)
	}
	for range 8 {
		select {
		case <-a.came:
		case <-b.came:
		case <-patient(t).Done():
			t.Fatal("nobody took it")
		}
	}
	stopA()
	for i := range 8 {
		body, err := schemas.EncodeCommand(command(fmt.Sprint("t", i), "after"))
		must(t, err)
		queueRaw(t, c, c.Subjects.Command("default", fmt.Sprint("t", i), schemas.OpExec), nil, body)
	}
	for range 8 {
		b.next(t)
	}
}

func TestPlaceRefusesNonsense(t *testing.T) {
	n, c := connected(t, false)
	work(t, n, "w1", func(w *owner) {
		w.place = func(*owner, string) schemas.PlaceReply {
			return schemas.PlaceReply{Error: schemas.Errorf(schemas.CodePoolExhausted, "full")}
		}
	})
	_, err := c.Send(patient(t), "default", command("t", "k"))
	wantCode(t, err, schemas.CodePoolExhausted)
	for tenant, body := range map[string]string{"default": "{", "b$d": `{"thread":"t"}`, "other": `{"thread":"a.b"}`} {
		m, err := c.nc.RequestWithContext(patient(t), c.Subjects.API(tenant, placeVerb), []byte(body))
		must(t, err)
		var r schemas.PlaceReply
		must(t, json.Unmarshal(m.Data, &r))
		if r.Error == nil || r.Error.Code != schemas.CodeInvalidArgument {
			t.Errorf("tenant %s, %s: %s", tenant, body, m.Data)
		}
	}
}

// An owner that dies answers nobody: the end that somebody else records reaches the caller all the same.
func TestEndIsToldByTheRecord(t *testing.T) {
	n, c := connected(t, true)
	w, _ := work(t, n, "w1", func(w *owner) {
		w.judge = func(w *owner, d schemas.Delivery) schemas.Verdict {
			p := schemas.ProcessID(d.Tenant, d.Thread, d.Command.Key)
			_ = w.conn.Answer(d.Inbox, record(d.Thread, p, schemas.TypeProcessAccepted, "a"))
			return schemas.Verdict{Action: schemas.ActionRetry}
		}
	})
	call, err := c.Send(patient(t), "default", command("t", "k"))
	must(t, err)
	defer call.Close()
	w.next(t)
	seq, err := c.Append(patient(t), record("t", call.Process(), schemas.TypeProcessAccepted, "a"), 0)
	must(t, err)
	told := make(chan string, 1)
	go func() { told <- ending(t, call) }()
	_, err = w.conn.Append(patient(t), record("t", call.Process(), schemas.TypeProcessLost, "lost"), seq)
	must(t, err)
	if got := <-told; !strings.HasSuffix(got, "lost") {
		t.Errorf("told %q", got)
	}
}

// A worker goes on where it was when the server comes back: on the fast path and on CMD.
func TestInletOutlivesTheServer(t *testing.T) {
	n, c := connected(t, true)
	w, _ := work(t, n, "w1", nil)
	must(t, w.inlet.Own(patient(t), "default", "t"))
	n.restart()
	body, err := schemas.EncodeCommand(command("t", "durable"))
	must(t, err)
	for {
		if _, err = c.js.PublishMsg(patient(t), &nats.Msg{Subject: c.Subjects.Command("default", "t", schemas.OpExec), Data: body}); err == nil {
			break
		}
		must(t, patient(t).Err())
	}
	if d := w.next(t); !d.Durable {
		t.Errorf("delivery %+v", d)
	}
	must(t, c.Kill(patient(t), ref("t", "p"), schemas.KillRequest{}))
}
