package events

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// plainServer is a NATS server on a free port, without JetStream unless o enables it.
func plainServer(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog, o.StoreDir = "127.0.0.1", -1, true, true, t.TempDir()
	o.AuthTimeout = testkit.Timeout.Seconds() // the default, 2 s, is too short for a client on a machine that stalls
	s, err := server.NewServer(o)
	testkit.Must(t, err)
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	s.Start()
	if !s.ReadyForConnections(testkit.Timeout) {
		t.Fatal("the server does not start")
	}
	return s
}

// Promises 15: a worker ended when JetStream did not answer its first requests. It waits, and says for what.
func TestEnsureLaterWaitsForJetStream(t *testing.T) {
	s := plainServer(t, &server.Options{})
	c, err := Connect(Options{URL: s.ClientURL(), Wait: true})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.EnsureLater(ctx, Topology{}, func(error) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	var waits []schemas.Code
	testkit.Must(t, c.EnsureLater(testkit.Context(t), Topology{Partitions: 1}, func(err error) {
		if waits = append(waits, schemas.CodeOf(err)); len(waits) == 2 {
			testkit.Must(t, s.EnableJetStream(&server.JetStreamConfig{StoreDir: t.TempDir(), MaxStore: 16 << 30}))
		}
	}))
	// A machine that stalls may have it wait again for the streams.
	testkit.Equal(t, "first waits", waits[:2], []schemas.Code{schemas.CodeUnavailable, schemas.CodeUnavailable})
}

// Promises 15: workers that started together on a new cluster ended: its streams have no leader yet, or too few servers.
func TestWorkersStartTogetherOnANewCluster(t *testing.T) {
	c := newCluster(t)
	ctx := testkit.Context(t)
	var all sync.WaitGroup
	for i := range c.servers {
		conn := c.connect(i)
		all.Go(func() {
			err := conn.EnsureLater(ctx, Topology{Replicas: 3}, func(err error) { t.Log(err) })
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
				return
			}
			if _, err := conn.AcquireLease(ctx, string(rune('a'+i)), "i1", nil, nil); err != nil && !isTransient(err) {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	all.Wait()
}

// What is wrong with the configuration does not pass: the worker ends at once, with the code.
func TestEnsureLaterReturnsMisconfigurations(t *testing.T) {
	user := func(name string, p *server.Permissions) *server.User {
		return &server.User{Username: name, Password: "pw", Permissions: p}
	}
	denied := &server.SubjectPermission{Deny: []string{"$JS.API.>"}}
	s := plainServer(t, &server.Options{JetStream: true, JetStreamMaxStore: 16 << 30, Users: []*server.User{
		user("all", nil), user("few", &server.Permissions{Publish: denied}),
	}})
	connect := func(user string) *Conn {
		c, err := Connect(Options{URL: "nats://" + user + ":pw@" + s.Addr().String(), Wait: true})
		testkit.Must(t, err)
		t.Cleanup(c.Close)
		return c
	}
	never := func(err error) { t.Errorf("it waits: %v", err) }
	all := connect("all")
	testkit.Must(t, all.EnsureLater(testkit.Context(t), Topology{Partitions: 1}, never))
	for _, v := range []struct {
		user     string
		topology Topology
		code     schemas.Code
	}{
		{"few", Topology{}, schemas.CodePermissionDenied},
		{"nobody", Topology{}, schemas.CodeUnauthenticated},
		{"all", Topology{LogBytes: 1 << 50}, schemas.CodeLimitExceeded},
		{"all", Topology{Replicas: 3}, schemas.CodeInternal},
	} {
		t.Run(v.user+" "+string(v.code), func(t *testing.T) {
			testkit.WantCode(t, connect(v.user).EnsureLater(testkit.Context(t), v.topology, never), v.code)
		})
	}
}
