package events

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

const (
	testParent   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	anotherTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-00"
)

// traced is a command's body; own is its origin.
func traced(t *testing.T, thread string, own schemas.Origin) []byte {
	t.Helper()
	cmd := command(thread, "k")
	cmd.Origin = own
	body, err := schemas.EncodeCommand(cmd)
	testkit.Must(t, err)
	return body
}

// Ten minutes 12: the trace context in the headers of a direct command reaches the worker, in any case of the headers' names. The body's
// own wins; an invalid one is ignored.
func TestTraceOfHeadersReachesTheWorker(t *testing.T) {
	n, c := connected(t, true)
	w, _ := startWorker(t, n, "w1", nil)
	testkit.Must(t, w.listener.Threads.Subscribe(testkit.Context(t), "default", "t"))
	w3c := nats.Header{"traceparent": {testParent}, "tracestate": {"a=1"}}
	both := schemas.Origin{TraceParent: testParent, TraceState: "a=1"}
	own := schemas.Origin{TraceParent: anotherTrace, Labels: map[string]string{"a": "1"}}
	for _, tt := range []struct {
		name      string
		own, want schemas.Origin
		header    nats.Header
	}{
		{"none", schemas.Origin{}, schemas.Origin{}, nil},
		{"headers", schemas.Origin{}, both, w3c},
		{"canonical headers", schemas.Origin{}, both, nats.Header{"Traceparent": {testParent}, "Tracestate": {"a=1"}}},
		{"the body's own", own, own, w3c},
		{"nonsense", schemas.Origin{}, schemas.Origin{}, nats.Header{"traceparent": {"nonsense"}, "tracestate": {"a=1"}}},
	} {
		m := &nats.Msg{Subject: c.subjects.RPC("default", "t", schemas.OpExec), Header: tt.header, Data: traced(t, "t", tt.own)}
		testkit.Must(t, c.nc.PublishMsg(m))
		testkit.Equal(t, tt.name, w.next(t).Command.Origin, tt.want)
	}
}

// Ten minutes 12: a queued command keeps the trace context of its headers where it is forwarded, and as a dead letter.
func TestTraceOfAQueuedCommand(t *testing.T) {
	n, c := connected(t, true)
	startWorker(t, n, "dispatcher", func(w *fakeWorker) {
		w.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict {
			return schemas.Verdict{Action: schemas.ActionForward, To: "owner"}
		}
	})
	conn := n.connect()
	owner := &fakeWorker{id: "owner", conn: conn, listener: conn.NewListener("owner"), received: make(chan schemas.Delivery, 16)}
	owner.onCommand = func(*fakeWorker, schemas.Delivery) schemas.Verdict {
		return schemas.Verdict{Action: schemas.ActionDead, Reason: schemas.Errorf(schemas.CodePolicyDenied, "never")}
	}
	owner.listener.handler, owner.listener.ctx = owner, t.Context()
	testkit.Must(t, errorOf(conn.nc.Subscribe(c.subjects.WorkerForwards("owner"), owner.listener.handleForward)))
	ctx := testkit.Context(t)
	testkit.Must(t, conn.Flush(ctx))
	queueRaw(t, c, c.subjects.Command("default", "t", schemas.OpExec), nats.Header{"traceparent": {testParent}}, traced(t, "t", schemas.Origin{}))
	testkit.Equal(t, "trace of a forwarded command", owner.next(t).Command.Origin, schemas.Origin{TraceParent: testParent})
	for {
		letters, err := c.js.Stream(ctx, c.names.dlq)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		testkit.Must(t, err)
		letter, err := letters.GetLastMsgForSubject(ctx, c.subjects.DeadLetter("default", "t"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		testkit.Must(t, err)
		testkit.Equal(t, "trace of a dead letter", letter.Header.Get("traceparent"), testParent)
		return
	}
}

// Ten minutes 12: an event has its trace context in the headers too, in EVT, on its feed and in an inbox.
func TestEventsHaveTraceHeaders(t *testing.T) {
	_, c := connected(t, false)
	ctx := testkit.Context(t)
	inbox, err := c.nc.SubscribeSync(c.nc.NewInbox())
	testkit.Must(t, err)
	feed, err := c.nc.SubscribeSync(c.subjects.Feed("default", "t", "p"))
	testkit.Must(t, err)
	ev := record("t", "p", schemas.TypeProcessAccepted, "e")
	ev.Origin = schemas.Origin{TraceParent: testParent, TraceState: "a=1"}
	c.append(t, ev, 0)
	testkit.Must(t, c.Answer(inbox.Subject, ev))
	for what, sub := range map[string]*nats.Subscription{"inbox": inbox, "feed": feed} {
		m, err := sub.NextMsgWithContext(ctx)
		testkit.Must(t, err)
		got := []string{m.Header.Get("traceparent"), m.Header.Get("tracestate")}
		testkit.Equal(t, "headers on the "+what, got, []string{testParent, "a=1"})
	}
}
