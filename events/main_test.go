package events

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// A store of nats-server 2.15 that was made while its disk was full leaves these two behind.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}

// node is a NATS server that can be shut down and started again in the same folder and on the same port.
type node struct {
	t      testing.TB
	cfg    embedded.Config
	server *embedded.Server
}

// newNode starts a server: on TCP when listen is set, else in process alone.
func newNode(t testing.TB, listen bool) *node {
	t.Helper()
	n := &node{t: t, cfg: embedded.Config{Dir: t.TempDir(), StoreBytes: 16 << 30}}
	if listen {
		n.cfg.Listen, n.cfg.Token = "127.0.0.1:0", "token-of-the-test"
	}
	n.start()
	t.Cleanup(func() { n.server.Close() })
	return n
}

func (n *node) start() {
	n.t.Helper()
	s, err := embedded.Start(n.cfg)
	must(n.t, err)
	n.server = s
	if n.cfg.Listen != "" {
		n.cfg.Listen = s.URL()[len("nats://"):]
	}
}

func (n *node) restart() {
	n.t.Helper()
	n.server.Close()
	n.start()
}

func (n *node) connect() *Conn {
	n.t.Helper()
	o := Options{InProcess: n.server}
	if n.cfg.Listen != "" {
		o = Options{URL: n.server.URL(), Token: n.cfg.Token}
	}
	c, err := Connect(o)
	must(n.t, err)
	n.t.Cleanup(c.Close)
	return c
}

// connected is a connection to a new cell in a new server.
func connected(t testing.TB, listen bool) (*node, *Conn) {
	t.Helper()
	n := newNode(t, listen)
	c := n.connect()
	must(t, c.Ensure(t.Context(), Topology{}))
	return n, c
}

// transports runs a test in process and over TCP.
func transports(t *testing.T, test func(t *testing.T, listen bool)) {
	t.Run("in process", func(t *testing.T) { test(t, false) })
	t.Run("tcp", func(t *testing.T) { test(t, true) })
}

// patient bounds a wait that a broken program would not end. No test depends on its length.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// record is an event of a process.
func record(thread, process string, typ schemas.EventType, id string) *schemas.Event {
	return &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: id, Source: "w1", Type: typ, Subject: process,
		Time: time.Unix(0, 0).UTC(), Tenant: schemas.DefaultTenant, Thread: thread, Process: process, Data: []byte(`{}`),
	}
}

func ref(thread, process string) schemas.ProcessRef {
	return schemas.ProcessRef{Tenant: schemas.DefaultTenant, Thread: thread, Process: process, Epoch: 1}
}

// must ends the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCode ends the test unless the error has this code.
func wantCode(t testing.TB, err error, code schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); got != code {
		t.Fatalf("error %v has the code %q, want %q", err, got, code)
	}
}

// missing fails where a machine of CI lacks something, and skips elsewhere.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}
