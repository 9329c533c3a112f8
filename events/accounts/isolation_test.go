package accounts_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/accounts"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

const secret = "secret-of-b"

// literal replaces the wildcards of a subject.
func literal(subject string) string {
	return strings.ReplaceAll(strings.ReplaceAll(subject, "*", "t1"), ">", "x")
}

// streams are those of a tenant, which have the same names in each.
var streams = [...]string{"sluice-local-CMD", "sluice-local-EVT", "sluice-local-LOG", "KV_sluice-local-state", "KV_sluice-local-leases"}

// A client and a gateway of tenant a are refused what is tenant b's, and the server logs it.
func TestClientsOfOtherTenantsAreRefused(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	n.fill("b", secret)
	theirs := events.NewGrants("local", "b")
	for _, role := range []accounts.Role{accounts.Client, accounts.Gateway} {
		x := n.attacker("a", role)
		subjects := append(storedSubjects("b")[:4], liveSubjects("b")...)
		for _, g := range slices.Concat(theirs.Direct, theirs.Commands, theirs.Requests, theirs.Batches, theirs.Tokens) {
			subjects = append(subjects, g.Subject)
		}
		subjects = append(subjects, jetStreamOf("b")...)
		subjects = append(subjects, "sluice.v1.local.cmdp.0.b.t1.exec", "$KV.sluice-local-leases.w1", "_INBOX.x", "_R_.x", "$JS.ACK.sluice-local-CMD.c.1.1.1.1.1", "$JS.FC.sluice-local-EVT.x",
			"$SYS.REQ.ACCOUNT.SLUICE_b.CONNZ", "$SYS.REQ.ACCOUNT.CLIENTS_b.SUBSZ", "$SYS.REQ.SERVER.PING.JSZ", "$SYS.ACCOUNT.SLUICE_b.CONNECT")
		for _, subject := range subjects {
			subject = literal(subject)
			testkit.Must(t, x.Publish(subject, nil))
			n.refused(x, subject)
		}
		subscribed := []string{}
		for _, g := range theirs.Copies {
			subscribed = append(subscribed, g.Subject)
		}
		for _, subject := range append(subscribed, "sluice.v1.local.b.>", "sluice.>", ">", "*.>", "$KV.>", "$SYS.>", "$JS.>", "_INBOX.>", "_INBOX_*.>", "_R_.>",
			"sluice.v1.local.b.cmd.>", "sluice.v1.local.b.rpc.>", "sluice.v1.local.b.ctl.>", "sluice.v1.local.b.evt.>", "sluice.v1.local.b.log.>", "sluice.v1.local.b.msg.>",
			"sluice.v1.local.b.dlq.>", "sluice.v1.local.b.fwd.>", "sluice.v1.local.b.tun.>", "sluice.v1.local.b.api.>", "sluice.v1.local.*.feed.>", "sluice.v1.local.*.tail.>",
			"sluice.v1.local.cmdp.>", "$JS.SLUICE_b.>", "$SYS.ACCOUNT.SLUICE_b.>", "_INBOX_b.x", "$KV.sluice-local-state.>") {
			_, err := x.SubscribeSync(subject)
			testkit.Must(t, err)
			n.refused(x, subject)
		}
		// In a group of subscribers, of which each message would reach one alone.
		for _, subject := range []string{"sluice.v1.local.b.rpc.*.*", "sluice.v1.local.b.api.>", "_INBOX_b.>"} {
			_, err := x.QueueSubscribeSync(subject, "workers")
			testkit.Must(t, err)
			n.refused(x, subject)
		}
	}
}

// jetStreamOf are requests to JetStream for the streams and buckets of a tenant, under the name by which its clients reach it.
func jetStreamOf(tenant string) (subjects []string) {
	api := "$JS." + events.AccountOf(tenant) + ".API."
	for _, verb := range []string{"INFO", "STREAM.NAMES", "STREAM.LIST", "STREAM.CREATE.x", "ACCOUNT.PURGE.SLUICE_" + tenant, "$KV.sluice-local-state.session." + tenant + ".t1"} {
		subjects = append(subjects, api+verb)
	}
	for _, s := range streams {
		for _, verb := range []string{
			"STREAM.INFO.%s", "STREAM.MSG.GET.%s", "DIRECT.GET.%s", "DIRECT.GET.%s.x", "STREAM.UPDATE.%s", "STREAM.DELETE.%s", "STREAM.PURGE.%s", "STREAM.MSG.DELETE.%s", "STREAM.SNAPSHOT.%s",
			"STREAM.RESTORE.%s", "STREAM.PEER.REMOVE.%s", "STREAM.LEADER.STEPDOWN.%s", "CONSUMER.CREATE.%s", "CONSUMER.CREATE.%s.c", "CONSUMER.DURABLE.CREATE.%s.c", "CONSUMER.NAMES.%s",
			"CONSUMER.LIST.%s", "CONSUMER.INFO.%s.c", "CONSUMER.DELETE.%s.c", "CONSUMER.MSG.NEXT.%s.c",
		} {
			subjects = append(subjects, api+fmt.Sprintf(verb, s))
		}
	}
	return subjects
}

// What a client of tenant a may send, it sends with tenant b's inboxes and subjects for the answer. Nothing of it arrives there.
func TestAnswersStayInTheirTenant(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	n.fill("a", "of-a")
	n.fill("b", secret)
	arrive := make(map[accounts.Role]*nats.Subscription)
	of := make(map[accounts.Role]*attacker)
	for _, role := range []accounts.Role{accounts.Client, accounts.Worker} {
		x, subject := n.attacker("b", role), ">"
		if role == accounts.Client {
			subject = events.InboxOf("b") + ".>"
		}
		all, err := x.SubscribeSync(subject)
		testkit.Must(t, err)
		testkit.Must(t, x.Flush())
		arrive[role], of[role] = all, x
	}
	// A worker of a answers as asked, both to the reply subject and to the inbox that the header names.
	w := n.attacker("a", accounts.Worker)
	s := events.NewSubjects(schemas.DefaultCell)
	asked := []string{s.RPC("a", "t1", schemas.OpExec), s.Control("a", "t1", "p1", "kill"), s.API("a", "place")}
	for _, subject := range asked {
		_, err := w.Subscribe(subject, func(m *nats.Msg) {
			for _, to := range []string{m.Reply, m.Header.Get("Sluice-Inbox")} {
				if w.Publish(to, []byte("from-a")) != nil {
					t.Errorf("the answer to %s was not sent", to)
				}
			}
			if m.Header.Get("Last") != "" {
				testkit.Must(t, w.Publish("answered."+m.Subject, nil))
			}
		})
		testkit.Must(t, err)
	}
	answered, err := w.SubscribeSync("answered.>")
	testkit.Must(t, err)
	testkit.Must(t, w.Flush())
	x := n.attacker("a", accounts.Client)
	theirs := append(storedSubjects("b"), liveSubjects("b")...)
	for _, subject := range asked {
		for i, to := range theirs {
			m := &nats.Msg{Subject: subject, Reply: to, Header: nats.Header{"Sluice-Inbox": {to}}}
			if i == len(theirs)-1 {
				m.Header.Set("Last", "1")
			}
			testkit.Must(t, x.PublishMsg(m))
		}
		_, err := answered.NextMsgWithContext(testkit.Context(t))
		testkit.Must(t, err)
	}
	// JetStream answers to any subject too.
	api := "$JS." + events.AccountOf("a") + ".API."
	for _, to := range theirs {
		testkit.Must(t, x.PublishRequest(api+"DIRECT.GET.sluice-local-LOG", to, []byte(`{"last_by_subj":">"}`)))
	}
	_, err = x.Request(api+"DIRECT.GET.sluice-local-LOG", []byte(`{"last_by_subj":">"}`), testkit.Timeout) // after those before it
	testkit.Must(t, err)
	testkit.Must(t, w.Flush())
	wantNothing(t, of[accounts.Worker], arrive[accounts.Worker], "a")
	testkit.Must(t, of[accounts.Client].Flush())
	if pending, _, err := arrive[accounts.Client].Pending(); err != nil || pending != 0 {
		t.Errorf("%d messages of a arrive at a client of b (error: %v), want none", pending, err)
	}
}

// wantNothing fails the test if a subscription has a message with this text. A message of its own comes after all that was sent before.
func wantNothing(t *testing.T, x *attacker, all *nats.Subscription, text string) {
	t.Helper()
	testkit.Must(t, x.Publish("sentinel", nil))
	for {
		m, err := all.NextMsgWithContext(testkit.Context(t))
		testkit.Must(t, err)
		if m.Subject == "sentinel" {
			return
		}
		if strings.Contains(string(m.Data), text) {
			t.Errorf("%s of the other tenant arrives: %q", m.Subject, m.Data)
		}
	}
}

// A worker of tenant a has all rights in its account: all it does reaches tenant a alone, and it reads nothing of tenant b.
func TestWorkersOfOtherTenantsReachNothing(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	n.fill("a", "of-a")
	x, b := n.attacker("a", accounts.Worker), n.attacker("b", accounts.Worker)
	listen := func(x *attacker) *nats.Subscription {
		all, err := x.SubscribeSync(">")
		testkit.Must(t, err)
		testkit.Must(t, x.Flush())
		return all
	}
	ofA, ofB := listen(x), listen(b)
	n.fill("b", secret)
	for _, subject := range liveSubjects("b") {
		testkit.Must(t, b.Publish(literal(subject), []byte(secret)))
	}
	testkit.Must(t, b.Flush())
	wantNothing(t, x, ofA, secret)

	for _, subject := range append(storedSubjects("b"), liveSubjects("b")...) {
		testkit.Must(t, x.Publish(literal(subject), []byte("from-a")))
	}
	testkit.Must(t, x.Flush())
	wantNothing(t, b, ofB, "from-a")
	testkit.Must(t, errors.Join(ofA.Unsubscribe(), ofB.Unsubscribe())) // they would count as responders

	request := func(x *attacker, subject, body string) string {
		m, err := x.Request(subject, []byte(body), testkit.Timeout)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(m.Header, string(m.Data))
	}
	stored := func() (all string) {
		for _, s := range streams {
			all += request(b, "$JS.API.STREAM.MSG.GET."+s, `{"last_by_subj":">"}`)
		}
		return all
	}
	before := stored()
	if got := strings.Count(before, "message\":"); got < 4 {
		t.Fatalf("b has messages in %d streams, want 4: %s", got, before)
	}
	for _, s := range streams {
		for subject, body := range map[string]string{
			"STREAM.INFO." + s: `{"subjects_filter":">"}`, "STREAM.NAMES": "", "STREAM.LIST": "", "INFO": "",
			"STREAM.MSG.GET." + s: `{"last_by_subj":">"}`, "DIRECT.GET." + s: `{"last_by_subj":">"}`, "CONSUMER.NAMES." + s: "",
			"CONSUMER.CREATE." + s: fmt.Sprintf(`{"stream_name":%q,"config":{"deliver_policy":"all","ack_policy":"none","inactive_threshold":60000000000}}`, s),
			"STREAM.PURGE." + s:    "", "STREAM.DELETE." + s: "",
		} {
			answer := request(x, "$JS.API."+subject, body)
			if strings.Contains(answer, secret) {
				t.Errorf("%s answers %s", subject, answer)
			}
		}
	}
	for _, subject := range []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.SLUICE_b.CONNZ", "$SYS.REQ.ACCOUNT.SLUICE_b.JSZ", "$SYS.REQ.ACCOUNT.SLUICE_b.SUBSZ"} {
		testkit.Equal(t, "answer to "+subject, request(x, subject, ""), nats.ErrNoResponders.Error())
	}
	for _, subject := range []string{"$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.PING.JSZ"} { // of the own account
		if answer := request(x, subject, `{"auth":true,"subscriptions":true}`); strings.Contains(answer, "SLUICE_b") || strings.Contains(answer, "CLIENTS_b") {
			t.Errorf("%s answers %s", subject, answer)
		}
	}
	testkit.Equal(t, "what b has", stored(), before)
}

// Clients of a tenant do not do what only its workers do: also not with a request whose answer would be stored.
func TestClientsAreNoWorkers(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	n.fill("a", "of-a")
	w := n.attacker("a", accounts.Worker)
	stored := func() (all string) {
		for _, s := range streams {
			m, err := w.Request("$JS.API.STREAM.MSG.GET."+s, []byte(`{"last_by_subj":">"}`), testkit.Timeout)
			testkit.Must(t, err)
			all += string(m.Data)
		}
		return all
	}
	before, api := stored(), "$JS."+events.AccountOf("a")+".API."
	for _, role := range []accounts.Role{accounts.Client, accounts.Gateway} {
		x := n.attacker("a", role)
		refused := []string{
			"sluice.v1.local.a.evt.t1.p1.process.exited", "sluice.v1.local.a.log.t1.p1.stdout", "sluice.v1.local.a.msg.t1.p1.user", "sluice.v1.local.a.dlq.t1",
			"sluice.v1.local.a.fwd.w1.t1.exec", "sluice.v1.local.a.feed.t1.p1.process.exited", "sluice.v1.local.a.tail.t1.p1.stdout", "sluice.v1.local.a.tun.t1.c1.down",
			"sluice.v1.local.cmdp.0.a.t1.exec", "$KV.sluice-local-state.session.a.t1", "$KV.sluice-local-state.worker.w1", "$KV.sluice-local-leases.w1", events.InboxOf("a") + ".x",
			"$JS.API.INFO", "$JS.API.STREAM.CREATE.x", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.MSG.GET.sluice-local-CMD", "$SYS.REQ.SERVER.PING", "$JS.ACK.x",
			"$KV.sluice-local-state.token.x", "$JS.API.DIRECT.GET.sluice-local-LOG", api + "STREAM.MSG.GET.sluice-local-CMD", api + "$KV.sluice-local-state.session.a.t1",
		}
		if role == accounts.Client {
			refused = append(refused, api+"$KV.sluice-local-state.token.x")
		}
		for _, s := range streams {
			for _, verb := range []string{"STREAM.UPDATE.", "STREAM.DELETE.", "STREAM.PURGE.", "STREAM.MSG.DELETE.", "STREAM.SNAPSHOT.", "CONSUMER.CREATE.", "CONSUMER.NAMES.", "CONSUMER.LIST."} {
				refused = append(refused, "$JS.API."+verb+s, api+verb+s)
			}
		}
		for _, subject := range refused {
			testkit.Must(t, x.PublishRequest(subject, events.InboxOf("a")+".answer", []byte("forged")))
			n.refused(x, subject)
		}
		for _, subject := range []string{"sluice.v1.local.a.rpc.>", "sluice.v1.local.a.ctl.t1.>", "sluice.v1.local.*.api.>", "sluice.v1.local.a.cmd.>", "sluice.v1.local.a.evt.>", "$KV.>", "_INBOX.>", ">"} {
			_, err := x.SubscribeSync(subject)
			testkit.Must(t, err)
			n.refused(x, subject)
		}
		// JetStream sends an answer to any subject. It arrives in the account of the clients, where nothing stores it.
		for _, reply := range append(storedSubjects("a"), "$KV.sluice-local-leases.w1", "$JS.API.STREAM.PURGE.sluice-local-EVT", "$JS.API.STREAM.DELETE.sluice-local-LOG") {
			testkit.Must(t, x.PublishRequest(api+"DIRECT.GET.sluice-local-LOG", reply, []byte(`{"last_by_subj":">"}`)))
			testkit.Must(t, x.PublishRequest(api+"STREAM.INFO.sluice-local-LOG", reply, nil))
		}
		answer, err := x.Request(api+"DIRECT.GET.sluice-local-LOG", []byte(`{"last_by_subj":">"}`), testkit.Timeout) // after those before it
		testkit.Must(t, err)
		testkit.Equal(t, "output that a client reads", string(answer.Data), "of-a")
		testkit.Equal(t, "what is stored", stored(), before)
	}
	// In the account of the streams, such an answer is stored.
	testkit.Must(t, w.PublishRequest("$JS.API.DIRECT.GET.sluice-local-LOG", storedSubjects("a")[4], []byte(`{"last_by_subj":">"}`)))
	for ctx := testkit.Context(t); stored() == before; {
		if ctx.Err() != nil {
			t.Fatal("the answer to a worker is not stored: this test shows nothing")
		}
	}
}

// A command that no worker takes is stored for the tenant of its client, and for no other.
func TestClientsQueueCommands(t *testing.T) {
	t.Parallel()
	n := newTenants(t)
	waiting := make(map[string]*nats.Conn)
	for _, tenant := range []string{"a", "b"} {
		testkit.Must(t, n.connect(tenant, accounts.Worker).Ensure(testkit.Context(t), events.Topology{Partitions: 1}))
		waiting[tenant] = n.attacker(tenant, accounts.Worker).Conn
	}
	call, err := n.connect("a", accounts.Client).Caller().NewCall("a", &schemas.Command{
		SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: "t1", Key: "k1", Exec: &schemas.Exec{Command: "true"},
	})
	testkit.Must(t, err)
	defer call.Close()
	testkit.Must(t, call.Send(testkit.Context(t)))
	testkit.Equal(t, "queued", call.Queued(), true)
	for tenant, want := range map[string]string{"a": `"messages":1`, "b": `"messages":0`} {
		info, err := waiting[tenant].Request("$JS.API.STREAM.INFO.sluice-local-CMD", nil, testkit.Timeout)
		testkit.Must(t, err)
		testkit.Contains(t, "CMD of tenant "+tenant, string(info.Data), want)
	}
}
