package events

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 13: a hook may send to subjects of the user's own: a program answers, a stream acks and drops a repetition, or no
// answer is needed. A subject that the server refuses is permission_denied at once, not a timeout.
func TestHookMessages(t *testing.T) {
	s := permittedServer(t, &server.User{Username: "worker", Permissions: &server.Permissions{ // as docs/hooks.md has them
		Publish:   &server.SubjectPermission{Allow: []string{"sluice.>", "$JS.>", "$KV.>", "_INBOX.>", "acme.>"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"sluice.>", "_INBOX.>"}},
	}})
	ctx := testkit.Context(t)
	user, err := nats.Connect(s.ClientURL(), nats.UserInfo("user", "pw"), nats.Timeout(testkit.Timeout))
	testkit.Must(t, err)
	t.Cleanup(user.Close)
	js, err := jetstream.New(user)
	testkit.Must(t, err)
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "DONE", Subjects: []string{"acme.done"}, MaxMsgs: 2, Discard: jetstream.DiscardNew})
	testkit.Must(t, err)
	_, err = user.Subscribe("acme.ask", func(m *nats.Msg) { _ = m.Respond([]byte(m.Header.Get("traceparent"))) })
	testkit.Must(t, err)
	heard, err := user.SubscribeSync("acme.note")
	testkit.Must(t, err)
	testkit.Must(t, user.Flush())

	c := connectAs(t, s, "worker")
	testkit.Must(t, c.Ensure(ctx, Topology{Partitions: 1}))
	worker, _ := startWorkerOn(t, c, "w1", nil)
	queue(t, c, command("t", "k")) // the worker itself needs no more rights
	testkit.Equal(t, "key of a command", worker.next(t).Command.Key, "k")
	w := c.Worker
	message := func(subject, id string) schemas.HookMessage {
		return schemas.HookMessage{Subject: subject, ID: id, Origin: schemas.Origin{TraceParent: testParent}, Body: []byte("{}")}
	}
	reply, err := w.Ask(ctx, message("acme.ask", "1"))
	testkit.Must(t, err)
	testkit.Equal(t, "reply", string(reply), testParent)

	for range 2 {
		reply, err = w.Ask(ctx, message("acme.done", "1"))
		testkit.Must(t, err)
		var ack jetstream.PubAck
		testkit.Must(t, json.Unmarshal(reply, &ack))
		testkit.Equal(t, "acked message", []any{ack.Stream, ack.Sequence}, []any{"DONE", uint64(1)})
	}
	info, err := stream.Info(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "messages of one occasion", info.State.Msgs, uint64(1))

	testkit.Must(t, w.Post(ctx, message("acme.note", "1")))
	m, err := heard.NextMsgWithContext(ctx)
	testkit.Must(t, err)
	testkit.Equal(t, "message without a reply", []string{string(m.Data), m.Reply, m.Header.Get(jetstream.MsgIDHeader)}, []string{"{}", "", "1"})
	testkit.Must(t, w.Post(ctx, message("acme.absent", "1")))

	testkit.WantCode(t, errorOf(w.Ask(ctx, message("acme.absent", "1"))), schemas.CodeUnavailable)
	for range 2 {
		testkit.WantCode(t, errorOf(w.Ask(ctx, message("other.ask", "1"))), schemas.CodePermissionDenied)
		testkit.WantCode(t, w.Post(ctx, message("other.note", "1")), schemas.CodePermissionDenied)
	}
	testkit.Must(t, w.Post(ctx, message("acme.note", "2"))) // an earlier refusal counts for no later message
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := w.Ask(ended, message("acme.ask", "2")); err == nil {
		t.Error("a request without time succeeded")
	}
}

// permittedServer has a user with few permissions, and one called user with all of them.
func permittedServer(t *testing.T, few *server.User) *server.Server {
	t.Helper()
	few.Password = "pw"
	return plainServer(t, &server.Options{JetStream: true, JetStreamMaxStore: 16 << 30, Users: []*server.User{few, {Username: "user", Password: "pw"}}})
}

func connectAs(t *testing.T, s *server.Server, user string) *peer {
	t.Helper()
	c, err := Connect(Options{URL: "nats://" + user + ":pw@" + s.Addr().String()})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	return newPeer(c)
}

// Ten minutes 12: the rights that docs/contract.md lists for a chain's consumer are enough, and let it read no other tenant's events.
func TestChainNeedsFewPermissions(t *testing.T) {
	s := permittedServer(t, &server.User{Username: "chain", Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"$JS.API.CONSUMER.CREATE.sluice-local-EVT.review.sluice.v1.local.default.evt.>", "$JS.API.CONSUMER.MSG.NEXT.sluice-local-EVT.review",
			"$JS.ACK.sluice-local-EVT.review.>", "sluice.v1.local.default.cmd.*.*",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}})
	ctx := testkit.Context(t)
	c := connectAs(t, s, "user")
	testkit.Must(t, c.Ensure(ctx, Topology{Partitions: 1}))
	chain, err := nats.Connect(s.ClientURL(), nats.UserInfo("chain", "pw"), nats.Timeout(testkit.Timeout), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	testkit.Must(t, err)
	t.Cleanup(chain.Close)
	js, err := jetstream.New(chain)
	testkit.Must(t, err)
	steps, err := js.CreateOrUpdateConsumer(ctx, "sluice-local-EVT", jetstream.ConsumerConfig{
		Durable: "review", FilterSubject: "sluice.v1.local.default.evt.*.*.stream.finished", AckPolicy: jetstream.AckExplicitPolicy,
	})
	testkit.Must(t, err)
	testkit.Must(t, c.Records.Publish(ctx, record("t", "p", schemas.TypeStreamFinished, "e")))
	m, err := steps.Next()
	testkit.Must(t, err)
	body, err := schemas.EncodeCommand(command("t2", "review:p"))
	testkit.Must(t, err)
	_, err = js.Publish(ctx, "sluice.v1.local.default.cmd.t2.exec", body)
	testkit.Must(t, err)
	testkit.Must(t, m.DoubleAck(ctx))
	testkit.Must(t, chain.Publish("$JS.API.CONSUMER.CREATE.sluice-local-EVT.review.sluice.v1.local.other.evt.>", []byte("{}")))
	testkit.Must(t, chain.Flush())
	if !errors.Is(chain.LastError(), nats.ErrPermissionViolation) {
		t.Error("the chain may consume the events of another tenant")
	}
}
