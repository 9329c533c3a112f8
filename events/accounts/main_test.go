package accounts_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/accounts"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// serverLog has what the server logs as an error.
type serverLog struct {
	server.Logger
	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed with the next line
}

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, v...))
	close(l.more)
	l.more = make(chan struct{})
}

// Noticef implements server.Logger.
func (*serverLog) Noticef(string, ...any) {}

// Warnf implements server.Logger.
func (*serverLog) Warnf(string, ...any) {}

// await waits for a line that has all parts: the server sends its error to the client first, and logs it then.
func (l *serverLog) await(ctx context.Context, parts ...string) error {
	read := 0
	for {
		l.mu.Lock()
		fresh, more := l.lines[read:], l.more
		l.mu.Unlock()
		for _, line := range fresh {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return nil
			}
		}
		read += len(fresh)
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("no line has %q", parts)
		}
	}
}

// tenants is a NATS server with the configuration of tenants a and b.
type tenants struct {
	t      *testing.T
	folder *accounts.Folder
	conf   string
	server *server.Server
	log    *serverLog
}

func newTenants(t *testing.T) *tenants {
	t.Helper()
	dir := t.TempDir()
	n := &tenants{t: t, folder: accounts.NewFolder(filepath.Join(dir, "tenants")), conf: filepath.Join(dir, "nats.conf"), log: &serverLog{more: make(chan struct{})}}
	for _, name := range []string{"a", "b"} {
		_, err := n.folder.Create(accounts.Tenant{Name: name, MaxStorage: 256 << 20})
		testkit.Must(t, err)
	}
	text, err := os.ReadFile("../../deploy/nats-tenants.conf")
	testkit.Must(t, err)
	own := strings.NewReplacer("0.0.0.0:4222", "127.0.0.1:-1", "127.0.0.1:8222", "127.0.0.1:-1", "/data", filepath.Join(dir, "streams")).Replace(string(text))
	testkit.Must(t, os.WriteFile(n.conf, []byte(own), 0o600))
	o, err := server.ProcessConfigFile(n.conf)
	testkit.Must(t, err)
	o.NoSigs = true
	n.server, err = server.NewServer(o)
	testkit.Must(t, err)
	n.server.SetLoggerV2(n.log, false, false, false)
	t.Cleanup(func() {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	})
	n.server.Start()
	if !n.server.ReadyForConnections(testkit.Timeout) {
		t.Fatalf("the server does not start: %q", n.log.lines)
	}
	return n
}

// connect connects as a program of Sluice.
func (n *tenants) connect(tenant string, role accounts.Role) *events.Conn {
	n.t.Helper()
	o := events.Options{URL: n.server.ClientURL(), CredsFile: n.folder.Creds(tenant, role), Tenant: tenant}
	if role == accounts.Worker {
		o.Tenant = ""
	}
	c, err := events.Connect(o)
	testkit.Must(n.t, err)
	n.t.Cleanup(c.Close)
	return c
}

// attacker is a connection that knows no rules.
type attacker struct {
	*nats.Conn
	t      *testing.T
	errors chan error
}

func (n *tenants) attacker(tenant string, role accounts.Role) *attacker {
	n.t.Helper()
	key, err := nats.NkeyOptionFromSeed(n.folder.Creds(tenant, role))
	testkit.Must(n.t, err)
	a := &attacker{t: n.t, errors: make(chan error, 1024)}
	a.Conn, err = nats.Connect(n.server.ClientURL(), key, nats.CustomInboxPrefix(events.InboxOf(tenant)),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { a.errors <- err }))
	testkit.Must(n.t, err)
	n.t.Cleanup(a.Close)
	return a
}

// refused waits until the server refuses the subject, and checks that it logs it.
func (n *tenants) refused(a *attacker, subject string) {
	n.t.Helper()
	ctx := testkit.Context(n.t)
	for {
		select {
		case err := <-a.errors:
			if strings.Contains(err.Error(), fmt.Sprintf("%q", subject)) {
				if err := n.log.await(ctx, "Violation", fmt.Sprintf("%q", subject)); err != nil {
					n.t.Errorf("the server does not log that it refuses %s: %v", subject, err)
				}
				return
			}
		case <-ctx.Done():
			n.t.Fatalf("%s is not refused", subject)
		}
	}
}

// reload has the server read its configuration again.
func (n *tenants) reload() {
	n.t.Helper()
	testkit.Must(n.t, n.server.Reload())
}

// fill creates the streams of a tenant, with a message that has the text in each kind of subject.
func (n *tenants) fill(tenant, text string) {
	n.t.Helper()
	testkit.Must(n.t, n.connect(tenant, accounts.Worker).Ensure(testkit.Context(n.t), events.Topology{Partitions: 1}))
	w := n.attacker(tenant, accounts.Worker)
	for _, subject := range storedSubjects(tenant) {
		if m, err := w.Request(subject, []byte(text), testkit.Timeout); err != nil || strings.Contains(string(m.Data), `"error"`) {
			n.t.Fatalf("store on %s: %v, %s", subject, err, m.Data)
		}
	}
}

// storedSubjects are subjects of a tenant that its streams and buckets store: commands, events, output, a session and a token.
func storedSubjects(tenant string) []string {
	s := events.NewSubjects(schemas.DefaultCell)
	return []string{
		s.Command(tenant, "t1", schemas.OpExec), s.Event(tenant, "t1", "p1", schemas.TypeProcessAccepted),
		s.Log(tenant, "t1", "p1", schemas.Stdout), "$KV.sluice-local-state.session." + tenant + ".t1", "$KV.sluice-local-state.token.x",
	}
}

// liveSubjects are subjects of a tenant that no stream stores.
func liveSubjects(tenant string) []string {
	s := events.NewSubjects(schemas.DefaultCell)
	return []string{
		s.RPC(tenant, "t1", schemas.OpExec), s.Control(tenant, "t1", "p1", "kill"), s.Control(tenant, "t1", "f1", "file"), s.API(tenant, "place"),
		s.API(tenant, "workspace.w1"), s.Tunnel(tenant, "t1", "c1", "up"), s.Tunnel(tenant, "t1", "c1", "down"), s.Forward(tenant, "w1", "t1", "exec"),
		s.Message(tenant, "t1", "p1", schemas.RoleUser), s.DeadLetter(tenant, "t1"), s.Said(tenant, "t1"), s.Feed(tenant, "t1", "p1"), s.Tail(tenant, "t1", "p1"),
		events.InboxOf(tenant) + ".x",
	}
}
