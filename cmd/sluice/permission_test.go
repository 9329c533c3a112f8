package main

import (
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// Ten minutes 11: commands print what NATS refuses, and which permission is missing. They waited for their deadline.
func TestRefusedSubjectIsPrinted(t *testing.T) {
	t.Parallel()
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, JetStreamMaxStore: 16 << 30, StoreDir: t.TempDir(),
		Users: []*natsserver.User{
			{Username: "all", Password: "pw"},
			{Username: "few", Password: "pw", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Deny: []string{"sluice.*.*.*.rpc.>", "$JS.API.>"}},
			}},
		},
	})
	testkit.Must(t, err)
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	s.Start()
	all, err := events.Connect(events.Options{URL: "nats://all:pw@" + s.Addr().String()})
	testkit.Must(t, err)
	t.Cleanup(all.Close)
	testkit.Must(t, all.Ensure(testkit.Context(t), events.Topology{Partitions: 1}))
	c := newCLI(t)
	for _, args := range [][]string{{"exec", "--", "true"}, {"ps"}, {"session", "list"}, {"events"}, {"status"}, {"template", "list"}, {"logs", schemas.ProcessID("default", "t1", "key")}} {
		args = append([]string{"--nats", "nats://few:pw@" + s.Addr().String()}, args...)
		c.run(args...).wantError(t, schemas.CodePermissionDenied, `NATS refuses to publish to "`)
	}
}
