package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) {
	testkit.Main(m, nil,
		// A store that nats-server 2.15 creates on a full disk leaves these two.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
	)
}

// node is a NATS server that restarts in the same folder and on the same port.
type node struct {
	t      testing.TB
	cfg    embedded.Config
	server *embedded.Server
}

// newNode starts a server: on TCP when listen is set, else in process only.
func newNode(t testing.TB, listen bool) *node {
	t.Helper()
	cfg := embedded.Config{Dir: t.TempDir(), StoreBytes: 16 << 30}
	if listen {
		cfg.Listen, cfg.Token = fmt.Sprint("127.0.0.1:", testkit.FreePort(t)), "token-of-the-test" // it listens there again after a restart
	}
	return startNode(t, cfg)
}

// startNode starts a server, and closes it after the test.
func startNode(t testing.TB, cfg embedded.Config) *node {
	t.Helper()
	n := &node{t: t, cfg: cfg}
	n.start()
	t.Cleanup(func() { n.server.Close() })
	return n
}

func (n *node) start() {
	n.t.Helper()
	s, err := embedded.Start(n.cfg)
	testkit.Must(n.t, err)
	n.server = s
}

func (n *node) restart() {
	n.t.Helper()
	n.server.Close()
	n.start()
}

// peer is a connection with the views of a caller and of a worker.
type peer struct {
	*Conn
	*Caller
	*Worker
	*Records
	*Logs
	*SessionStore
	*Roster
	*MessageStore
}

func newPeer(c *Conn) *peer {
	w := c.Worker()
	return &peer{c, c.Caller(), w, w.Records, w.Logs, w.Sessions, w.Roster, w.Messages}
}

// Send sends a command as a client does.
func (c *peer) Send(ctx context.Context, tenant string, cmd *schemas.Command) (*Call, error) {
	k, err := c.NewCall(tenant, cmd)
	if err != nil {
		return nil, err
	}
	if err := k.Send(ctx); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// call sends a command, and closes the call after the test.
func (c *peer) call(t testing.TB, cmd *schemas.Command) *Call {
	t.Helper()
	k, err := c.Send(testkit.Context(t), schemas.DefaultTenant, cmd)
	testkit.Must(t, err)
	t.Cleanup(k.Close)
	return k
}

// append stores a record after the one with this sequence, and returns its own.
func (c *peer) append(t testing.TB, ev *schemas.Event, after uint64) uint64 {
	t.Helper()
	seq, err := c.Append(testkit.Context(t), ev, after)
	testkit.Must(t, err)
	return seq
}

// acquire takes a lease; see AcquireLease.
func (c *peer) acquire(t testing.TB, worker, incarnation string, earlier []string, waiting func(holder string)) *Lease {
	t.Helper()
	l, err := c.AcquireLease(testkit.Context(t), worker, incarnation, earlier, waiting)
	testkit.Must(t, err)
	return l
}

// follow subscribes to the output of a process, until the end of the test.
func (c *peer) follow(t testing.TB, r schemas.ProcessRef, from uint64) *Follower {
	t.Helper()
	f, err := c.FollowLog(r, from)
	testkit.Must(t, err)
	t.Cleanup(f.Close)
	testkit.Must(t, f.Flush(testkit.Context(t)))
	return f
}

// errorOf returns the error of a call with two results.
func errorOf[T any](_ T, err error) error { return err }

// wantIs fails the test unless err is target.
func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error = %v, want %v", err, target)
	}
}

func (n *node) connect() *peer {
	n.t.Helper()
	o := Options{InProcess: n.server}
	if n.cfg.Listen != "" {
		o = Options{URL: n.server.URL(), Token: n.cfg.Token}
	}
	c, err := Connect(o)
	testkit.Must(n.t, err)
	n.t.Cleanup(c.Close)
	return newPeer(c)
}

// connected returns a connection to a new cell in a new server.
func connected(t testing.TB, listen bool) (*node, *peer) {
	t.Helper()
	n := newNode(t, listen)
	c := n.connect()
	testkit.Must(t, c.Ensure(t.Context(), Topology{}))
	return n, c
}

// transports runs a test in process and over TCP.
func transports(t *testing.T, test func(t *testing.T, listen bool)) {
	t.Run("in process", func(t *testing.T) { test(t, false) })
	t.Run("tcp", func(t *testing.T) { test(t, true) })
}

// record returns an event of a process.
func record(thread, process string, typ schemas.EventType, id string) *schemas.Event {
	return &schemas.Event{
		SpecVersion: schemas.EventSpecVersion, ID: id, Source: "w1", Type: typ, Subject: process,
		Time: time.Unix(0, 0).UTC(), Tenant: schemas.DefaultTenant, Thread: thread, Process: process, Data: []byte(`{}`),
	}
}

// recordOf is a record of a command's process, with an error of this code unless it is empty.
func recordOf(cmd *schemas.Command, typ schemas.EventType, id string, code schemas.Code) *schemas.Event {
	r := &schemas.Result{Fingerprint: cmd.Fingerprint()}
	if typ == schemas.TypeProcessRejected {
		r.Reason = schemas.ReasonRejected
	}
	if code != "" {
		r.Error = schemas.Errorf(code, "no")
	}
	ev := record(cmd.Thread, schemas.ProcessID(schemas.DefaultTenant, cmd.Thread, cmd.Key), typ, id)
	if err := ev.SetData(r); err != nil {
		panic(err)
	}
	return ev
}

func ref(thread, process string) schemas.ProcessRef {
	return schemas.ProcessRef{Tenant: schemas.DefaultTenant, Thread: thread, Process: process, Epoch: 1}
}
