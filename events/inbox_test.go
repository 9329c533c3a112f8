package events

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestInboxes(t *testing.T) {
	for _, tt := range []struct {
		subject       string
		inbox, answer bool
	}{
		{"_INBOX.x", true, true},
		{"_INBOX.Kd2_-9.17.x", true, true},
		{"_INBOX_t1.x.1", true, true},
		{"_R_.abc.def", false, true},
		{"_GR_.abcdef.ghijkl._INBOX.x", false, true},
		{"_GR_.abcdef.ghijkl._R_.x", false, true},
		{"_GR_.abcdef.ghijkl.sluice.v1.local.t1.evt.t.p.process.exited", false, false},
		{"_GR_.abcdef", false, false},
		{"", false, false},
		{"_INBOX", false, false},
		{"_INBOX.", false, false},
		{"_INBOX..x", false, false},
		{"_INBOX.x.", false, false},
		{"_INBOX.x..y", false, false},
		{"_INBOX.*", false, false},
		{"_INBOX.x.>", false, false},
		{"_INBOX.$KV", false, false},
		{"_INBOX.x y", false, false},
		{"_INBOX.x\r\n", false, false},
		{"_INBOX.\xc3\xa9", false, false},
		{"_INBOX_t2.x", false, false},
		{"_INBOX_t11.x", false, false},
		{"_INBOX_t1", false, false},
		{"_INBOX_.x", false, false},
		{"_INBOXES.x", false, false},
		{"_inbox.x", false, false},
		{"_INBOX." + strings.Repeat("x", maxInbox), false, false},
		{"sluice.v1.local.t1.evt.t.p.process.exited", false, false},
		{"$KV.sluice-local-leases.w1", false, false},
		{"$JS.API.STREAM.DELETE.sluice-local-EVT", false, false},
		{"mine", false, false},
	} {
		if got := isInbox("t1", tt.subject); got != tt.inbox {
			t.Errorf("isInbox of %q = %v, want %v", tt.subject, got, tt.inbox)
		}
		if got := isReply("t1", tt.subject); got != tt.answer {
			t.Errorf("isReply of %q = %v, want %v", tt.subject, got, tt.answer)
		}
	}
	testkit.Equal(t, "isInbox without a tenant", isInbox("", "_INBOX_.x"), false)
}

// Promises 20: a caller with the right to publish on rpc, cmd, ctl and api alone named a record and a lease as its inbox, and the
// worker wrote both.
func TestOnlyInboxesAreAnswered(t *testing.T) {
	n, c := connected(t, false)
	ctx := testkit.Context(t)
	testkit.Must(t, c.Ensure(ctx, Topology{LeaseTTL: testkit.Timeout})) // it is not renewed
	lease := c.acquire(t, "w1", "i1", nil, nil)
	type refusal struct{ subject, inbox string }
	refused := make(chan refusal, 16)
	w, _ := startWorker(t, n, "w1", func(w *fakeWorker) {
		w.listener.OnRefusedInbox = func(subject, inbox string, _ uint64) { refused <- refusal{subject, inbox} }
	})
	testkit.Must(t, w.listener.Threads.Subscribe(ctx, "default", "t"))
	guest, s := n.connect().nc, c.subjects
	body, err := json.Marshal(command("t", "k"))
	testkit.Must(t, err)
	process := schemas.ProcessID("default", "t", "k")
	for _, target := range []string{
		s.Event("default", "t", process, schemas.TypeProcessExited), "$KV." + c.names.leases + ".w1", s.DeadLetter("default", "t"),
		s.RPC("default", "t", schemas.OpExec), "_INBOX.q.*", "_INBOX_other.x", "elsewhere",
	} {
		watch, err := c.nc.SubscribeSync(target)
		testkit.Must(t, err)
		testkit.Must(t, c.Flush(ctx))
		own := 0 // what the guest itself sends to the target
		for what, m := range map[string]*nats.Msg{
			"header of rpc":            {Subject: s.RPC("default", "t", schemas.OpExec), Header: nats.Header{headerInbox: {target}}, Data: body},
			"reply of rpc":             {Subject: s.RPC("default", "t", schemas.OpExec), Reply: target, Data: body},
			"reply of a forwarded one": {Subject: s.Forward("default", "w1", "t", string(schemas.OpExec)), Reply: target, Data: body},
			"header of cmd":            {Subject: s.Command("default", "t", schemas.OpExec), Header: nats.Header{headerInbox: {target}}, Data: body},
			"reply of ctl":             {Subject: s.Control("default", "t", process, VerbKill), Reply: target, Data: []byte("{}")},
			"reply of a session's ctl": {Subject: s.Control("default", "t", noProcess, VerbRenew), Reply: target},
			"reply of api":             {Subject: s.API("default", placeVerb), Reply: target, Data: []byte(`{"thread":"t"}`)},
		} {
			if m.Subject == target {
				own++
			}
			testkit.Must(t, guest.PublishMsg(m))
			select {
			case r := <-refused:
				testkit.Equal(t, what+": refused inbox", r.inbox, target)
			case <-ctx.Done():
				t.Fatalf("%s: the worker answers %s", what, target)
			}
		}
		testkit.Must(t, w.conn.Flush(ctx))
		testkit.Must(t, c.Flush(ctx))
		got, _, err := watch.Pending()
		testkit.Must(t, err)
		testkit.Equal(t, "messages on "+target, got, own)
		testkit.Must(t, watch.Unsubscribe())
		testkit.WantCode(t, w.conn.Answer(target, record("t", process, schemas.TypeProcessExited, "e")), schemas.CodePermissionDenied)
	}
	testkit.Equal(t, "the lease holds", lease.Holds(), true)
	testkit.Must(t, lease.renew(ctx))
	testkit.WantCode(t, errorOf(c.Last(ctx, "default", "t", process)), schemas.CodeNotFound)
	// Inboxes are answered, the tenant's own included.
	for _, inbox := range []string{guest.NewInbox(), "_INBOX_default.x"} {
		sub, err := guest.SubscribeSync(inbox)
		testkit.Must(t, err)
		for _, m := range []*nats.Msg{
			{Subject: s.RPC("default", "t", schemas.OpExec), Header: nats.Header{headerInbox: {inbox}}, Data: body},
			{Subject: s.Control("default", "t", process, VerbKill), Reply: inbox, Data: []byte("{}")},
		} {
			testkit.Must(t, guest.PublishMsg(m))
			testkit.Must(t, errorOf(sub.NextMsgWithContext(ctx)))
		}
	}
}
