package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/observe"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// cell is a NATS server with its streams, for the workers of a test.
type cell struct {
	t      testing.TB
	ctx    context.Context
	dir    string
	server *embedded.Server
	conn   *events.Conn
	raw    *nats.Conn // a plain connection, as a user's service has
}

func newCell(t testing.TB) *cell {
	t.Helper()
	c := &cell{t: t, ctx: testkit.Context(t), dir: t.TempDir()}
	ctx := c.ctx
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(c.dir, "nats"), StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	c.server = server
	c.conn, err = events.Connect(events.Options{InProcess: server})
	testkit.Must(t, err)
	t.Cleanup(c.conn.Close)
	testkit.Must(t, c.conn.Ensure(ctx, events.Topology{Partitions: 1, LeaseTTL: testkit.Timeout}))
	c.raw, err = nats.Connect("", nats.InProcessServer(server))
	testkit.Must(t, err)
	t.Cleanup(c.raw.Close)
	return c
}

// worker runs a worker with the templates in yaml until the test ends or stop is called, and returns its hooks.
func (c *cell) worker(id, yaml string) (_ *hooks.Chains, stop func()) {
	c.t.Helper()
	return c.workerIn(testkit.ShortDir(c.t), id, yaml)
}

// workerIn is worker with its data in a folder.
func (c *cell) workerIn(dir, id, yaml string) (_ *hooks.Chains, stop func()) {
	c.t.Helper()
	templates := c.t.TempDir()
	testkit.Must(c.t, os.WriteFile(filepath.Join(templates, "all.yaml"), []byte(yaml), 0o600))
	n := New(Config{
		Worker: id, Provider: schemas.ProviderLocal, Allowed: []string{schemas.ProviderLocal}, RunFolder: filepath.Join(dir, "run"), Workspaces: filepath.Join(dir, "ws"),
		Grace: 100 * time.Millisecond, Log: zerolog.Nop(), PrivateHooks: true, Templates: templates,
	}, c.conn)
	n.retryFirst = 20 * time.Millisecond
	end, err := membership.Background(c.ctx, n.Run)
	testkit.Must(c.t, err)
	stop = sync.OnceFunc(func() {
		if err := end(); err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(stop)
	return n.hooks, stop
}

func (c *cell) types() (out []string) {
	c.t.Helper()
	_, err := c.conn.Caller().ReadEvents(c.ctx, events.Filter{}, 1, func(ev *schemas.Event) error {
		out = append(out, string(ev.Type))
		return nil
	})
	testkit.Must(c.t, err)
	return out
}

func (c *cell) messages() (texts []string) {
	c.t.Helper()
	_, err := c.conn.Caller().Messages(c.ctx, schemas.DefaultTenant, "t1", 1, func(m *schemas.Message) error {
		texts = append(texts, m.Text)
		return nil
	})
	testkit.Must(c.t, err)
	return texts
}

func TestHooksSaveAndPushConversation(t *testing.T) {
	c := newCell(t)
	cl, err := client.New(c.conn)
	testkit.Must(t, err)
	session := func() *schemas.Session {
		t.Helper()
		info, err := cl.SessionInfo(c.ctx, "t1")
		testkit.Must(t, err)
		return info
	}
	sh := func(script string) string {
		t.Helper()
		r, err := cl.Exec(c.ctx, client.Request{Thread: "t1", Command: "sh", Args: []string{"-c", script}})
		testkit.Must(t, err)
		return r.Stdout
	}
	tpl := &schemas.Template{
		Name: "default", Sync: &schemas.TemplateSync{Location: "file://" + c.dir + "/store/{tenant}/{agent}/{thread}"},
		Agent: &schemas.TemplateAgent{Command: []string{"agent"}},
	}
	yaml := "name: default\nsync: {location: '" + tpl.Sync.Location + "'}\nagent: {command: [agent]}\n"
	first, stop := c.worker("w1", yaml)
	sh("echo one > a")
	c.await("cold start reported", func() bool { return slices.Contains(c.types(), string(schemas.TypeColdStartFinished)) }) // no command waits for that
	info := session()
	current := schemas.Conversation{Tenant: info.Tenant, Thread: "t1", Template: "default", Session: info.ID, Epoch: info.Epoch}
	run := func(chains *hooks.Chains, d schemas.HookData, dir string) {
		t.Helper()
		d.Conversation = current
		done, err := chains.Run(c.ctx, tpl, d, dir, nil)
		testkit.Must(t, err)
		if len(done.Failed) > 0 {
			t.Fatalf("hooks of %s failed: %v", d.Phase, done.Failed)
		}
	}
	prompt := &schemas.Message{Thread: "t1", Session: info.ID, Process: "p1", Role: schemas.RoleUser, Text: "hello", Time: time.Now().UTC()}
	answer := &schemas.Message{Thread: "t1", Session: info.ID, Process: "p1", Role: schemas.RoleAgent, Text: "hi", Time: time.Now().UTC()}
	run(first, schemas.HookData{Phase: schemas.PhaseMessage, Occasion: "p1", Message: prompt}, info.Workspace)
	finish := schemas.HookData{Phase: schemas.PhaseStreamFinish, Occasion: "p1", Message: answer, Usage: &schemas.Usage{InputTokens: 1}}
	run(first, finish, info.Workspace)
	info = session()
	testkit.Equal(t, "messages and input tokens of the session", []int64{info.Messages, info.Usage.InputTokens}, []int64{1, 1})
	if info.Version == "" {
		t.Error("the session has no version of its workspace")
	}
	sh("echo two > b")
	stopped, err := cl.StopSession(c.ctx, "t1")
	testkit.Must(t, err)
	testkit.Equal(t, "session stopped", stopped.ID, current.Session)
	stop()
	want := strings.Fields(`hook.started sync.pulled hook.finished coldstart.finished
		hook.started message.saved hook.finished
		hook.started message.saved hook.finished hook.started hook.finished hook.started sync.pushed hook.finished
		hook.started sync.pushed hook.finished hook.started hook.finished session.terminated`)
	got := slices.DeleteFunc(c.types(), func(typ string) bool { return !slices.Contains(want, typ) })
	testkit.Equal(t, "event types", got, want)

	// Another worker continues with the workspace as last pushed. A phase that is delivered to it again is stored once.
	second, _ := c.worker("w2", yaml)
	testkit.Equal(t, "workspace on the second worker", sh("cat a b"), "one\ntwo\n")
	old := current
	info = session()
	current.Session, current.Epoch = info.ID, info.Epoch
	run(second, finish, info.Workspace)
	testkit.Equal(t, "messages", c.messages(), []string{"hello", "hi"})

	// A worker that lost the thread and does not know it pushes nothing.
	stale := c.t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(stale, "a"), []byte("stale"), 0o600))
	for _, chains := range []*hooks.Chains{first, second} {
		done, err := chains.Run(c.ctx, tpl, schemas.HookData{Phase: schemas.PhaseTerminate, Occasion: "stale", Conversation: old}, stale, nil)
		testkit.Must(t, err)
		testkit.Equal(t, "failed hooks of the stale session", done.Failed, []string{schemas.HookPush})
		testkit.Equal(t, "pending hooks of the stale session", chains.Pending(), 0)
	}
	entries, err := os.ReadDir(filepath.Join(c.dir, "store", "default", "default", "t1", ".sandbox-state.d", "versions"))
	testkit.Must(t, err)
	if len(entries) != 1 { // the first push's; the second push's is the current state
		t.Errorf("%d old versions are stored, want 1", len(entries))
	}
}

func TestRequestHookAsksOverNATS(t *testing.T) {
	c := newCell(t)
	chains, _ := c.worker("w1", "name: any\n")
	conversation := schemas.Conversation{Tenant: schemas.DefaultTenant, Thread: "t1", Session: "s1", Epoch: 1}
	critical := true
	ask := func(subject string, timeout int64) error {
		tpl := &schemas.Template{Name: "tpl", Hooks: map[schemas.Phase][]schemas.HookSpec{
			schemas.PhaseTerminate: {{Subject: subject, Critical: &critical, TimeoutMS: timeout}},
		}}
		_, err := chains.Run(c.ctx, tpl, schemas.HookData{Phase: schemas.PhaseTerminate, Occasion: subject, Conversation: conversation}, "", nil)
		return err
	}
	answer := func(subject string, f func(*nats.Msg)) {
		_, err := c.raw.Subscribe(subject, f)
		testkit.Must(t, err)
	}
	answer("mine.ok", func(m *nats.Msg) {
		testkit.Contains(t, "request", string(m.Data), `"occasion":"mine.ok"`)
		_ = m.Respond(nil)
	})
	answer("mine.no", func(m *nats.Msg) { _ = m.Respond([]byte(`{"code":"policy_denied","message":"not today"}`)) })
	answer("mine.never", func(*nats.Msg) {})
	testkit.Must(t, c.raw.Flush())
	testkit.Must(t, ask("mine.ok", 0))
	testkit.WantCode(t, ask("mine.no", 0), schemas.CodePolicyDenied)
	testkit.WantCode(t, ask("mine.never", 50), schemas.CodeDeadlineExceeded)
	err := ask("mine.absent", 0)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	testkit.Contains(t, "error", err.Error(), "no responder on mine.absent")
}

// Promises 17: an event that cannot be stored is logged and counted.
func TestDroppedEventIsLoggedAndCounted(t *testing.T) {
	c := newCell(t)
	log, registry := newLineWaiter(), prometheus.NewRegistry()
	n := New(Config{Worker: "w1", Metrics: registry, Log: zerolog.New(log)}, c.conn)
	var err error
	n.observer, err = observe.New(n.cfg.Log, registry)
	testkit.Must(t, err)
	buffer, err := n.makeHooks()
	testkit.Must(t, err)
	wait := n.runHooks(c.ctx, buffer, nil)
	ev := &schemas.Event{SpecVersion: schemas.EventSpecVersion, ID: "large", Type: schemas.TypeHookFinished, Tenant: schemas.DefaultTenant, Thread: "t"}
	testkit.Must(t, ev.SetData(strings.Repeat("x", int(c.conn.MaxPayload()))))
	buffer.Record(c.ctx, ev)
	wait()
	text, _ := log.state()
	testkit.Contains(t, "log", text, `"total":1,"message":"event dropped"`)
	families, err := registry.Gather()
	testkit.Must(t, err)
	for _, f := range families {
		if f.GetName() == "sluice_events_dropped_total" {
			testkit.Equal(t, "dropped", f.GetMetric()[0].GetCounter().GetValue(), 1.0)
			return
		}
	}
	t.Error("no metric of dropped events")
}
