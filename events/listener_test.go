package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// fakeWorker is a minimal handler: it accepts each command and answers its start and its end.
type fakeWorker struct {
	id       string
	conn     *peer
	listener *Listener
	// onPlace replaces HandlePlace; nil takes the thread.
	onPlace func(*fakeWorker, string) schemas.PlaceReply
	// onCommand returns the verdict on a command; nil accepts it.
	onCommand func(*fakeWorker, schemas.Delivery) schemas.Verdict
	// onCancel is HandleCancel; nil has nothing to cancel.
	onCancel func(schemas.Cancel) (bool, error)
	// onControl returns the outcome of a control message; nil returns success.
	onControl func(schemas.Control) error
	// onProcesses returns the processes of the worker; nil returns none.
	onProcesses func(schemas.ProcessesRequest) schemas.ProcessesReply
	// dial is HandleConnect.
	dial func(ctx context.Context) (net.Conn, error)
	// room is what Room returns; nil for 1.
	room *atomic.Int64
	// roomFor is RoomFor; nil returns what room holds.
	roomFor func(tenant, thread string) int
	// asked receives a value each time Room is called; nil for none.
	asked chan struct{}

	received chan schemas.Delivery
	decided  sync.Map // verdicts by attempt
}

// attempt is a try to have a worker accept a durable command.
type attempt struct {
	sent   int64
	number int
}

// HandleCommand decides once on each attempt. A machine that stalls has a command delivered again while its ack is on its way, or forwarded again
// while its answer is: as a record does, the first verdict answers it.
func (w *fakeWorker) HandleCommand(_ context.Context, d schemas.Delivery) schemas.Verdict {
	key := attempt{d.Sent.UnixNano(), d.Attempt}
	if v, ok := w.decided.Load(key); ok && d.Durable {
		return v.(schemas.Verdict)
	}
	v := w.decide(d)
	switch v.Action {
	case schemas.ActionFull, schemas.ActionDecline, schemas.ActionLimit: // it waits, and has no further attempt
	default:
		w.decided.Store(key, v)
	}
	w.received <- d
	return v
}

func (w *fakeWorker) decide(d schemas.Delivery) schemas.Verdict {
	v := schemas.Verdict{}
	switch {
	case w.onCommand != nil:
		v = w.onCommand(w, d)
	case d.Invalid != nil:
		v = schemas.Verdict{Action: schemas.ActionDead, Reason: d.Invalid}
	}
	if v.Action == schemas.ActionDone && d.Command != nil {
		_ = w.conn.Answer(d.Inbox, record(d.Thread, d.Process, schemas.TypeProcessAccepted, "a-"+w.id))
		_ = w.conn.Answer(d.Inbox, record(d.Thread, d.Process, schemas.TypeProcessExited, "e-"+w.id))
	}
	return v
}

func (w *fakeWorker) HandleCancel(_ context.Context, c schemas.Cancel) (bool, error) {
	if w.onCancel == nil {
		return false, nil
	}
	return w.onCancel(c)
}

func (w *fakeWorker) HandleControl(_ context.Context, ctl schemas.Control, done func(error)) {
	if w.onControl != nil {
		done(w.onControl(ctl))
		return
	}
	done(nil)
}

func (w *fakeWorker) HandleSession(_ context.Context, _ schemas.SessionControl, done func(schemas.SessionReply)) {
	done(schemas.SessionReply{})
}

func (w *fakeWorker) HandleConnect(ctx context.Context, _, _ string, _ schemas.ConnectRequest) (net.Conn, error) {
	return w.dial(ctx)
}

func (w *fakeWorker) HandleService(_ context.Context, _ schemas.ServiceControl, done func(schemas.ServiceReply)) {
	done(schemas.ServiceReply{})
}

func (w *fakeWorker) HandleFile(schemas.FileMessage, func(schemas.FileAnswer)) {}

func (w *fakeWorker) HandleWorkspace(context.Context, string, schemas.WorkspaceRemoval) error {
	return nil
}

func (w *fakeWorker) HandleProcesses(_ context.Context, _ string, req schemas.ProcessesRequest) schemas.ProcessesReply {
	if w.onProcesses == nil {
		return schemas.ProcessesReply{}
	}
	return w.onProcesses(req)
}

func (w *fakeWorker) HandleCleaned(ctx context.Context, _, thread string, done schemas.ProcessesCleaned) error {
	ev := record(thread, "", schemas.TypeProcessesCleaned, "cleaned")
	if err := ev.SetData(done); err != nil {
		return err
	}
	return w.conn.Publish(ctx, ev)
}

func (w *fakeWorker) Room() int {
	if w.room == nil {
		return 1
	}
	if w.asked != nil {
		w.asked <- struct{}{}
	}
	return int(w.room.Load())
}

func (w *fakeWorker) RoomFor(tenant, thread string) int {
	switch {
	case w.roomFor != nil:
		return w.roomFor(tenant, thread)
	case w.room == nil:
		return 1
	default:
		return int(w.room.Load())
	}
}

func (w *fakeWorker) HandlePlace(ctx context.Context, tenant string, req schemas.PlaceRequest) schemas.PlaceReply {
	if w.onPlace != nil {
		return w.onPlace(w, req.Thread)
	}
	if err := w.listener.Threads.Subscribe(ctx, tenant, req.Thread); err != nil {
		return schemas.PlaceReply{Error: schemas.AsError(err)}
	}
	return schemas.PlaceReply{Worker: w.id, Session: &schemas.Session{Owner: w.id}}
}

// startWorker starts a worker on a new connection; stop ends it.
func startWorker(t *testing.T, n *node, id string, configure func(*fakeWorker)) (w *fakeWorker, stop func()) {
	t.Helper()
	return startWorkerOn(t, n.connect(), id, configure)
}

// startWorkerOn is startWorker on a connection.
func startWorkerOn(t *testing.T, c *peer, id string, configure func(*fakeWorker)) (w *fakeWorker, stop func()) {
	t.Helper()
	w = &fakeWorker{id: id, conn: c, listener: c.NewListener(id), received: make(chan schemas.Delivery, 4096)}
	if configure != nil {
		configure(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.listener.Run(ctx, w, func() { close(ready) }) }()
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

// eventsUntilEnd returns the ids of a call's events, up to its end.
func eventsUntilEnd(t *testing.T, call *Call) string {
	t.Helper()
	ids := ""
	for ended := false; !ended; {
		ev, err := call.Next(testkit.Context(t))
		testkit.Must(t, err)
		ids += ev.ID + " "
		ended = ev.Type.Terminal()
	}
	return strings.TrimSpace(ids)
}

func queueRaw(t *testing.T, c *peer, subject string, header nats.Header, body []byte) {
	t.Helper()
	_, err := c.js.PublishMsg(testkit.Context(t), &nats.Msg{Subject: subject, Header: header, Data: body})
	testkit.Must(t, err)
}

// queue puts a command into CMD, without an inbox: its caller wants no answer.
func queue(t *testing.T, c *peer, cmd *schemas.Command) {
	t.Helper()
	body, err := schemas.EncodeCommand(cmd)
	testkit.Must(t, err)
	queueRaw(t, c, c.subjects.Command("default", cmd.Thread, schemas.OpExec), nil, body)
}

func (w *fakeWorker) next(t *testing.T) schemas.Delivery {
	t.Helper()
	select {
	case d := <-w.received:
		return d
	case <-testkit.Context(t).Done():
		t.Fatalf("worker %s received no command", w.id)
		panic("unreachable")
	}
}

func TestCommandReachesTheOwner(t *testing.T) {
	transports(t, func(t *testing.T, listen bool) {
		n, c := connected(t, listen)
		w, _ := startWorker(t, n, "w1", nil)
		for i := range 3 { // the first places the thread, the others go directly to its owner
			call := c.call(t, command("t", fmt.Sprint(i)))
			testkit.Equal(t, "queued with a worker", call.Queued(), false)
			testkit.Equal(t, "events", eventsUntilEnd(t, call), "a-w1 e-w1")
			call.Close()
			d := w.next(t)
			wantDelivery(t, d, fmt.Sprint(i), false)
			testkit.Equal(t, "attempt", d.Attempt, 1)
			testkit.Equal(t, "tenant", d.Tenant, "default")
		}
		w.listener.Threads.Unsubscribe("default", "t")
		call := c.call(t, command("t", "again"))
		eventsUntilEnd(t, call)
	})
}

func TestCommandIsQueuedWithoutAWorker(t *testing.T) {
	n, c := connected(t, true)
	var calls []*Call
	for i := range 20 {
		call := c.call(t, command("t", fmt.Sprint(i)))
		testkit.Equal(t, "queued without a worker", call.Queued(), true)
		calls = append(calls, call)
	}
	c.call(t, command("t", "gone")).Close() // the command stays queued
	w, _ := startWorker(t, n, "w1", nil)
	for _, call := range calls {
		testkit.Equal(t, "events", eventsUntilEnd(t, call), "a-w1 e-w1")
	}
	for i := range 20 {
		wantDelivery(t, w.next(t), fmt.Sprint(i), true)
	}
	wantDelivery(t, w.next(t), "gone", true)
}

func wantDelivery(t *testing.T, d schemas.Delivery, key string, durable bool) {
	t.Helper()
	testkit.Equal(t, "key", d.Command.Key, key)
	testkit.Equal(t, "durable", d.Durable, durable)
}

func TestRetryKeepsTheOrder(t *testing.T) {
	n, c := connected(t, false)
	for i := range 5 {
		testkit.Must(t, errorOf(c.Send(testkit.Context(t), "default", command("t", fmt.Sprint(i)))))
	}
	tries := map[string]int{}
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.onCommand = func(_ *fakeWorker, d schemas.Delivery) schemas.Verdict {
			if tries[d.Command.Key]++; tries[d.Command.Key] != d.Attempt {
				t.Errorf("command %s: attempt = %d, want %d", d.Command.Key, d.Attempt, tries[d.Command.Key])
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
	testkit.Equal(t, "order of the deliveries", keys, "011234")
}

func TestInvalidCommandsBecomeDeadLetters(t *testing.T) {
	n, c := connected(t, false)
	good, err := schemas.EncodeCommand(command("t", "k"))
	testkit.Must(t, err)
	subject := c.subjects.Command("default", "t", schemas.OpExec)
	bad := []struct {
		subject string
		body    []byte
		code    schemas.Code
	}{
		{subject, []byte("{"), schemas.CodeInvalidArgument},
		{subject, nil, schemas.CodeInvalidArgument},
		{subject, []byte(`{"specversion":"1","` + strings.Repeat("x", 700<<10) + `":1}`), schemas.CodeInvalidArgument},
		{subject, bytes.Repeat([]byte("x"), schemas.MaxCommandBytes+1), schemas.CodeTooLarge},
		{c.subjects.Command("default", "other", schemas.OpExec), good, schemas.CodeInvalidArgument},
		{c.subjects.Command("default", "t", "nonsense"), good, schemas.CodeInvalidArgument},
		{c.subjects.Command("default", "b$d", schemas.OpExec), good, schemas.CodeInvalidArgument},
		{c.subjects.Command("t€nant", "t", schemas.OpExec), good, schemas.CodeInvalidArgument},
	}
	for _, b := range bad {
		queueRaw(t, c, b.subject, nil, b.body)
	}
	queueRaw(t, c, subject, nil, good)
	w, stop := startWorker(t, n, "w1", nil)
	codes := map[schemas.Code]int{}
	for range len(bad) + 1 {
		d := w.next(t)
		if d.Invalid == nil {
			continue
		}
		codes[d.Invalid.Code]++
		if len(d.Invalid.Message) > 2*maxReason {
			t.Errorf("the reason has %d bytes, want at most %d", len(d.Invalid.Message), 2*maxReason)
		}
	}
	testkit.Equal(t, "codes", codes, map[schemas.Code]int{schemas.CodeInvalidArgument: len(bad) - 1, schemas.CodeTooLarge: 1})
	stop()
	// The worker does not wait for its acks: they may still be in flight.
	for ctx := testkit.Context(t); ; {
		dlq, err := c.js.Stream(ctx, c.names.dlq)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		testkit.Must(t, err)
		cmd, err := c.js.Stream(ctx, c.names.cmd)
		testkit.Must(t, err)
		if dead, left := dlq.CachedInfo().State.Msgs, cmd.CachedInfo().State.Msgs; dead == uint64(len(bad)) && left == 0 {
			break
		}
	}
	_, err = c.js.PublishMsg(testkit.Context(t), &nats.Msg{Subject: subject, Data: make([]byte, 900<<10)})
	testkit.WantCode(t, wrap(err, "queue"), schemas.CodeTooLarge)
}

// The ack of a command may come too late: it is delivered again after its dead letter.
func TestDeadLetterIsStoredOnce(t *testing.T) {
	_, c := connected(t, false)
	d := newDispatcher(t.Context(), c.NewListener("w1"))
	h, m := &unacked{seq: 7, sent: time.Unix(1, 0)}, &stored{body: []byte("{")}
	reason := schemas.Errorf(schemas.CodeInvalidArgument, "no")
	for range 2 {
		testkit.Must(t, d.deadLetter(testkit.Context(t), h, schemas.Delivery{Tenant: "default", Thread: "t"}, m, reason))
	}
	testkit.Must(t, d.deadLetter(testkit.Context(t), &unacked{seq: 7, sent: time.Unix(2, 0)}, schemas.Delivery{Tenant: "default", Thread: "t"}, m, reason))
	letters, err := c.js.Stream(testkit.Context(t), c.names.dlq)
	testkit.Must(t, err)
	testkit.Equal(t, "dead letters of two commands", letters.CachedInfo().State.Msgs, uint64(2))
}

// awaitLetter waits for a dead letter of a thread, and returns its headers.
func awaitLetter(t *testing.T, c *peer, thread string) nats.Header {
	t.Helper()
	for {
		letters, err := c.js.Stream(testkit.Context(t), c.names.dlq)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		testkit.Must(t, err)
		m, err := letters.GetLastMsgForSubject(testkit.Context(t), c.subjects.DeadLetter("default", thread))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		testkit.Must(t, err)
		return m.Header
	}
}

// Promises 2: a forwarded command stays durable, and the owner's verdict decides.
func TestDurableCommandIsForwarded(t *testing.T) {
	n, c := connected(t, true)
	// It dispatches: the owner of the test does not consume the queue.
	startWorker(t, n, "dispatcher", func(w *fakeWorker) {
		w.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict {
			return schemas.Verdict{Action: schemas.ActionForward, To: "owner"}
		}
	})
	verdicts := []schemas.Verdict{
		{Action: schemas.ActionRetry}, {Action: schemas.ActionForward, To: "another"}, {Action: schemas.ActionDone},
		{Action: schemas.ActionRetry}, {Action: schemas.ActionDead, Reason: schemas.Errorf(schemas.CodePolicyDenied, "never")},
	}
	conn := n.connect()
	owner := &fakeWorker{id: "owner", conn: conn, listener: conn.NewListener("owner"), received: make(chan schemas.Delivery, 16)}
	owner.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict {
		v := verdicts[0]
		verdicts = verdicts[1:]
		return v
	}
	owner.listener.handler, owner.listener.ctx = owner, t.Context()
	testkit.Must(t, errorOf(conn.nc.Subscribe(c.subjects.WorkerForwards("owner"), owner.listener.handleForward)))
	testkit.Must(t, conn.Flush(testkit.Context(t)))

	for _, key := range []string{"a", "b"} {
		queue(t, c, command("t", key))
	}
	deliveries := ""
	for range 5 {
		d := owner.next(t)
		if d.Invalid != nil {
			t.Fatal(d.Invalid)
		}
		deliveries += fmt.Sprintf("%s%d%q%v ", d.Command.Key, d.Attempt, d.Inbox, d.Durable)
	}
	testkit.Equal(t, "deliveries", deliveries, `a1""true a2""true a3""true b1""true b2""true `)
	testkit.Equal(t, "reason of the dead letter", awaitLetter(t, c, "t").Get(headerReason), "never")
}

// Promises 1: the owner of a thread that is not subscribed to it answers a request to take it, whichever worker receives that.
func TestPlaceRequestReachesTheOwner(t *testing.T) {
	n, c := connected(t, true)
	for _, id := range []string{"owner", "other"} {
		startWorker(t, n, id, func(w *fakeWorker) {
			w.onPlace = func(w *fakeWorker, thread string) schemas.PlaceReply {
				if w.id != "owner" {
					return schemas.PlaceReply{Worker: "owner"}
				}
				testkit.Must(t, w.listener.Threads.Subscribe(context.Background(), "default", thread))
				return schemas.PlaceReply{Worker: "owner"}
			}
		})
	}
	for i := range 16 {
		call := c.call(t, command(fmt.Sprint("t", i), "k"))
		testkit.Equal(t, "queued with an owner", call.Queued(), false)
		testkit.Equal(t, "events", eventsUntilEnd(t, call), "a-owner e-owner")
	}
}

// A worker that is taking as many threads as it can declines another one, so that its command waits in the queue.
func TestCommandOfAThreadTooManyIsQueued(t *testing.T) {
	n, c := connected(t, false)
	taking, end := make(chan struct{}, maxPlaces), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.onPlace = func(*fakeWorker, string) schemas.PlaceReply {
			taking <- struct{}{}
			<-end
			return schemas.PlaceReply{Worker: "w1"}
		}
	})
	t.Cleanup(release) // before the worker's end
	for i := range maxPlaces {
		testkit.Must(t, c.nc.Publish(c.subjects.API("default", placeVerb), fmt.Appendf(nil, `{"thread":"t%d"}`, i)))
	}
	for range maxPlaces {
		select {
		case <-taking:
		case <-testkit.Context(t).Done():
			t.Fatal("the worker takes fewer threads than it can")
		}
	}
	call := c.call(t, command("more", "k"))
	release()
	testkit.Equal(t, "queued", call.Queued(), true)
	testkit.Equal(t, "events", eventsUntilEnd(t, call), "a-w1 e-w1")
	wantDelivery(t, w.next(t), "k", true)
}

// Promises 4: an owner that wakes up declines the command after its caller has queued it.
func TestLateDeclineIsNoEndOfAQueuedCommand(t *testing.T) {
	for _, watching := range []bool{false, true} {
		_, c := connected(t, false)
		call := c.call(t, command("t", "k"))
		testkit.Equal(t, "queued without a worker", call.Queued(), true)
		if watching {
			ev, err := call.startWatch(testkit.Context(t))
			testkit.Must(t, err)
			if ev != nil {
				t.Fatalf("record %s, want none", ev.ID)
			}
		}
		declined := record("t", call.Process(), schemas.TypeProcessRejected, "declined")
		testkit.Must(t, declined.SetData(&schemas.Result{
			Reason: schemas.ReasonRejected, Error: schemas.Errorf(schemas.CodeUnavailable, "not now").With(schemas.DetailDeclined, "now"),
		}))
		testkit.Must(t, c.Answer(call.inbox, declined))
		testkit.Must(t, c.Answer(call.inbox, record("t", call.Process(), schemas.TypeProcessExited, "end")))
		testkit.Equal(t, "events", eventsUntilEnd(t, call), "end")
	}
}

func TestAnotherWorkerTakesOverTheQueue(t *testing.T) {
	n, c := connected(t, true)
	a, stopA := startWorker(t, n, "a", nil)
	b, _ := startWorker(t, n, "b", nil)
	for i := range 8 {
		queue(t, c, command(fmt.Sprint("t", i), "k"))
	}
	for range 8 {
		select {
		case <-a.received:
		case <-b.received:
		case <-testkit.Context(t).Done():
			t.Fatal("no worker received the command")
		}
	}
	stopA()
	for i := range 8 {
		queue(t, c, command(fmt.Sprint("t", i), "after"))
	}
	for range 8 {
		b.next(t)
	}
}

func TestInvalidPlaceRequestIsRejected(t *testing.T) {
	n, c := connected(t, false)
	startWorker(t, n, "w1", func(w *fakeWorker) {
		w.onPlace = func(*fakeWorker, string) schemas.PlaceReply {
			return schemas.PlaceReply{Error: schemas.Errorf(schemas.CodePoolExhausted, "full")}
		}
	})
	testkit.WantCode(t, errorOf(c.Send(testkit.Context(t), "default", command("t", "k"))), schemas.CodePoolExhausted)
	for tenant, body := range map[string]string{"default": "{", "b$d": `{"thread":"t"}`, "other": `{"thread":"a.b"}`} {
		m, err := c.nc.RequestWithContext(testkit.Context(t), c.subjects.API(tenant, placeVerb), []byte(body))
		testkit.Must(t, err)
		var r schemas.PlaceReply
		testkit.Must(t, json.Unmarshal(m.Data, &r))
		if r.Error == nil || r.Error.Code != schemas.CodeInvalidArgument {
			t.Errorf("place %s for tenant %s: reply = %s, want code %s", body, tenant, m.Data, schemas.CodeInvalidArgument)
		}
	}
}

// A dead owner does not answer. The caller receives the end that another worker records.
func TestCallReturnsTheRecordedEnd(t *testing.T) {
	n, c := connected(t, true)
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.onCommand = func(w *fakeWorker, d schemas.Delivery) schemas.Verdict {
			_ = w.conn.Answer(d.Inbox, record(d.Thread, d.Process, schemas.TypeProcessAccepted, "a"))
			return schemas.Verdict{Action: schemas.ActionRetry}
		}
	})
	call := c.call(t, command("t", "k"))
	w.next(t)
	seq := c.append(t, recordOf(command("t", "k"), schemas.TypeProcessAccepted, "a", ""), 0)
	ids := make(chan string, 1)
	go func() { ids <- eventsUntilEnd(t, call) }()
	testkit.Must(t, errorOf(w.conn.Append(testkit.Context(t), recordOf(command("t", "k"), schemas.TypeProcessLost, "lost", ""), seq)))
	if got := <-ids; !strings.HasSuffix(got, "lost") {
		t.Errorf("events = %q, want lost as the last", got)
	}
}

// After a restart of the server, the worker receives commands from CMD and control messages again.
func TestListenerSurvivesAServerRestart(t *testing.T) {
	n, c := connected(t, true)
	w, _ := startWorker(t, n, "w1", nil)
	testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), "default", "t"))
	n.restart()
	body, err := schemas.EncodeCommand(command("t", "durable"))
	testkit.Must(t, err)
	for {
		// A request that is sent while the connection breaks has no answer.
		try, cancel := context.WithTimeout(testkit.Context(t), publishTimeout)
		_, err = c.js.PublishMsg(try, &nats.Msg{Subject: c.subjects.Command("default", "t", schemas.OpExec), Data: body})
		cancel()
		if err == nil {
			break
		}
		testkit.Must(t, testkit.Context(t).Err())
	}
	testkit.Equal(t, "durable", w.next(t).Durable, true)
	testkit.Must(t, c.Kill(testkit.Context(t), ref("t", "p"), schemas.KillRequest{}))
}
