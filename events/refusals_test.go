package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 11: what NATS does not permit is permission_denied at once. It was deadline_exceeded, after the deadline.
func TestRefusedSubjectsArePermissionDenied(t *testing.T) {
	const thread, process = "t1", "p1"
	ref := schemas.ProcessRef{Tenant: schemas.DefaultTenant, Thread: thread, Process: process}
	send := func(ctx context.Context, c *Caller) error {
		call, err := c.NewCall(ref.Tenant, &schemas.Command{
			SpecVersion: schemas.Version, Op: schemas.OpExec, Thread: thread, Key: "k", Exec: &schemas.Exec{Command: "true"},
		})
		if err != nil {
			return err
		}
		defer call.Close()
		return call.Send(ctx)
	}
	read := func(ctx context.Context, c *Caller) error {
		_, err := c.ReadEvents(ctx, Filter{}, 1, func(*schemas.Event) error { return nil })
		return err
	}
	publish, subscribe := func(subject string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}}
	}, func(subject string) *server.Permissions {
		return &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{subject}}}
	}
	cases := map[string]struct {
		denied *server.Permissions
		call   func(context.Context, *Caller) error
	}{
		"command": {publish("*.*.*.*.rpc.>"), send},
		"place":   {publish("*.*.*.*.api.>"), send},
		"queue":   {publish("*.*.*.*.cmd.>"), send},
		"answer":  {subscribe("_INBOX.>"), send},
		"cancel":  {publish("*.*.*.*.cmd.>"), func(ctx context.Context, c *Caller) error { return c.Cancel(ctx, ref, "f") }},
		"kill":    {publish("*.*.*.*.ctl.>"), func(ctx context.Context, c *Caller) error { return c.Kill(ctx, ref, schemas.KillRequest{}) }},
		"stop": {publish("*.*.*.*.ctl.>"), func(ctx context.Context, c *Caller) error {
			_, err := c.StopSession(ctx, ref.Tenant, thread, schemas.StopRequest{})
			return err
		}},
		"events":     {publish("$JS.API.DIRECT.GET.>"), read},
		"read-inbox": {subscribe("_INBOX.>"), read},
		"sessions": {publish("$JS.API.DIRECT.GET.>"), func(ctx context.Context, c *Caller) error {
			return c.Sessions(ctx, ref.Tenant, func(*schemas.Session) error { return nil })
		}},
		"record": {publish("$JS.API.STREAM.MSG.GET.>"), func(ctx context.Context, c *Caller) error {
			_, err := c.Last(ctx, ref.Tenant, thread, process)
			return err
		}},
		"bucket": {publish("$JS.API.STREAM.INFO.>"), func(ctx context.Context, c *Caller) error {
			_, err := c.Template(ctx, "default")
			return err
		}},
		"template": {publish("$JS.API.DIRECT.GET.>"), func(ctx context.Context, c *Caller) error {
			_, err := c.Template(ctx, "default")
			return err
		}},
		"status": {publish("$JS.API.STREAM.INFO.>"), func(ctx context.Context, c *Caller) error {
			_, err := c.Status(ctx, ref.Tenant)
			return err
		}},
		"feed": {subscribe("*.*.*.*.feed.>"), func(ctx context.Context, c *Caller) error {
			feed, err := c.FollowEvents(Filter{}, 0)
			if err != nil {
				return err
			}
			defer feed.Close()
			return feed.Next(ctx, func(*schemas.Event) error { return nil })
		}},
	}
	users := []*server.User{{Username: "all", Password: "pw"}}
	for name, v := range cases {
		users = append(users, &server.User{Username: name, Password: "pw", Permissions: v.denied})
	}
	s := plainServer(t, &server.Options{JetStream: true, JetStreamMaxStore: 16 << 30, Users: users})
	connect := func(t *testing.T, user string) *Conn {
		c, err := Connect(Options{URL: "nats://" + user + ":pw@" + s.Addr().String()})
		testkit.Must(t, err)
		t.Cleanup(c.Close)
		return c
	}
	testkit.Must(t, connect(t, "all").Ensure(testkit.Context(t), Topology{Partitions: 1}))
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			err := v.call(testkit.Context(t), connect(t, name).Caller())
			testkit.WantCode(t, err, schemas.CodePermissionDenied)
		})
	}
}

// The server's text is read as it writes it. A text of another form refuses nothing.
func TestRefusalIn(t *testing.T) {
	check := func(err error, want refusal) {
		t.Helper()
		if got := refusalIn(err); got != want {
			t.Errorf("refusal in %v: %+v, want %+v", err, got, want)
		}
	}
	for text, want := range map[string]refusal{
		`Permissions Violation for Publish to "a.b"`:                      {subject: "a.b"},
		`Permissions Violation for Publish to "a\"b\u00a0c"`:              {subject: "a\"b\u00a0c"},
		`Permissions Violation for Publish to "Subscription.to"`:          {subject: "Subscription.to"},
		`Permissions Violation for Subscription to "a.>"`:                 {subject: "a.>", subscription: true},
		`Permissions Violation for Subscription to "a" using queue "b"`:   {subject: "a", subscription: true},
		`Permissions Violation for Subscription to "_INBOX.a" (sid "12")`: {subject: "_INBOX.a", subscription: true},
		`Permissions Violation for Publish to "a`:                         {},
		`Permissions Violation`:                                           {},
	} {
		check(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, text), want)
	}
	check(errors.New(`Publish to "a"`), refusal{})
	err := wrap(fmt.Errorf(`%w: Permissions Violation for Subscription to "_INBOX.a"`, nats.ErrPermissionViolation), "list workers")
	testkit.WantCode(t, err, schemas.CodePermissionDenied)
	if !strings.Contains(err.Error(), `list workers: NATS refuses to subscribe to "_INBOX.a"`) {
		t.Errorf("error = %v", err)
	}
	check(nil, refusal{})
}

// A refusal is about the request that caused it: another one of the same connection goes on.
func TestRefusalEndsNoOtherRequest(t *testing.T) {
	s := plainServer(t, &server.Options{JetStream: true, JetStreamMaxStore: 16 << 30, Users: []*server.User{
		{Username: "all", Password: "pw"},
		{Username: "few", Password: "pw", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"no"}}}},
	}})
	connect := func(user string) *Conn {
		c, err := Connect(Options{URL: "nats://" + user + ":pw@" + s.Addr().String()})
		testkit.Must(t, err)
		t.Cleanup(c.Close)
		return c
	}
	few, answering := connect("few"), connect("all")
	asked, answer := make(chan struct{}), make(chan struct{})
	_, err := answering.nc.Subscribe("yes", func(m *nats.Msg) {
		close(asked)
		<-answer
		_ = m.Respond([]byte("answer")) // a lost answer fails the test
	})
	testkit.Must(t, err)
	testkit.Must(t, answering.Flush(t.Context()))
	got := make(chan string, 1)
	go func() {
		body, err := few.Worker().Ask(testkit.Context(t), schemas.HookMessage{Subject: "yes"})
		if err != nil {
			body = []byte(err.Error())
		}
		got <- string(body)
	}()
	<-asked
	_, err = few.Worker().Ask(testkit.Context(t), schemas.HookMessage{Subject: "no"})
	testkit.WantCode(t, err, schemas.CodePermissionDenied)
	close(answer)
	testkit.Equal(t, "answer", <-got, "answer")
}
