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
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code schemas.Code) {
	t.Helper()
	if got := schemas.CodeOf(err); got != code {
		t.Fatalf("error %v has the code %q, want %q", err, got, code)
	}
}

// cell is a NATS server, with what a hook's test needs of a worker.
type cell struct {
	t    testing.TB
	ctx  context.Context
	dir  string
	conn *events.Conn
	raw  *nats.Conn // a user's own
}

func newCell(t testing.TB) *cell {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := &cell{t: t, ctx: ctx, dir: t.TempDir()}
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(c.dir, "nats"), StoreBytes: 16 << 30})
	must(t, err)
	t.Cleanup(server.Close)
	c.conn, err = events.Connect(events.Options{InProcess: server})
	must(t, err)
	t.Cleanup(c.conn.Close)
	must(t, c.conn.Ensure(ctx, events.Topology{Partitions: 1}))
	c.raw, err = nats.Connect("", nats.InProcessServer(server))
	must(t, err)
	t.Cleanup(c.raw.Close)
	return c
}

// worker runs a worker until the test's end, or until stop is called. What yaml holds is its templates. The chains are its own.
func (c *cell) worker(id, yaml string) (_ *hooks.Chains, stop func()) {
	c.t.Helper()
	templates := c.t.TempDir()
	must(c.t, os.WriteFile(filepath.Join(templates, "all.yaml"), []byte(yaml), 0o600))
	dir, err := os.MkdirTemp("", "sl") // short: it holds unix sockets
	must(c.t, err)
	n := New(Config{
		Worker: id, Provider: Local, Allowed: []string{Local}, RunFolder: filepath.Join(dir, "run"), Workspaces: filepath.Join(dir, "ws"),
		Grace: 100 * time.Millisecond, Log: zerolog.Nop(), PrivateHooks: true, Templates: templates,
	}, c.conn)
	ctx, cancel := context.WithCancel(c.ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		c.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
		must(c.t, os.RemoveAll(dir))
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
	must(c.t, err)
	return out
}

func (c *cell) messages() (out []*schemas.Message) {
	c.t.Helper()
	_, err := c.conn.Caller().Messages(c.ctx, schemas.DefaultTenant, "t1", 1, func(m *schemas.Message) error {
		out = append(out, m)
		return nil
	})
	must(c.t, err)
	return out
}

func TestAConversationsHooksOverNATSAndAFolder(t *testing.T) {
	c := newCell(t)
	cl, err := client.New(c.conn)
	must(t, err)
	sh := func(script string) string {
		t.Helper()
		r, err := cl.Exec(c.ctx, client.Request{Thread: "t1", Command: "sh", Args: []string{"-c", script}})
		must(t, err)
		return r.Stdout
	}
	tpl := &schemas.Template{
		Name: "default", Sync: &schemas.TemplateSync{Location: "file://" + c.dir + "/kept/{tenant}/{agent}/{thread}"},
		Agent: &schemas.TemplateAgent{Command: []string{"agent"}},
	}
	yaml := "name: default\nsync: {location: '" + tpl.Sync.Location + "'}\nagent: {command: [agent]}\n"
	first, stop := c.worker("w1", yaml)
	sh("echo one > a")
	info, err := cl.SessionInfo(c.ctx, "t1")
	must(t, err)
	who := schemas.Conversation{Tenant: info.Tenant, Thread: "t1", Template: "default", Session: info.ID, Epoch: info.Epoch}
	dir := info.Workspace
	run := func(chains *hooks.Chains, d schemas.HookData, dir string) {
		t.Helper()
		d.Conversation = who
		if failed, err := chains.Run(c.ctx, tpl, d, dir, nil); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
	}
	prompt := &schemas.Message{Thread: "t1", Session: info.ID, Process: "p1", Role: schemas.RoleUser, Text: "hello", Time: time.Now().UTC()}
	answer := &schemas.Message{Thread: "t1", Session: info.ID, Process: "p1", Role: schemas.RoleAgent, Text: "hi", Time: time.Now().UTC()}
	run(first, schemas.HookData{Phase: schemas.PhaseMessage, Occasion: "p1", Message: prompt}, dir)
	finish := schemas.HookData{Phase: schemas.PhaseStreamFinish, Occasion: "p1", Message: answer, Usage: &schemas.Usage{InputTokens: 1}}
	run(first, finish, dir)
	info, err = cl.SessionInfo(c.ctx, "t1")
	must(t, err)
	if info.Messages != 1 || info.Usage.InputTokens != 1 || info.Version == "" {
		t.Errorf("the session: %+v", info)
	}
	sh("echo two > b")
	stopped, err := cl.StopSession(c.ctx, "t1")
	must(t, err)
	if stopped.ID != who.Session {
		t.Errorf("session %s was stopped", stopped.ID)
	}
	stop()
	want := strings.Fields(`hook.started sync.pulled hook.finished coldstart.finished
		hook.started message.saved hook.finished
		hook.started message.saved hook.finished hook.started hook.finished hook.started sync.pushed hook.finished
		hook.started sync.pushed hook.finished hook.started hook.finished session.terminated`)
	got := slices.DeleteFunc(c.types(), func(typ string) bool { return !slices.Contains(want, typ) })
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("events %q\nwant   %q", got, want)
	}

	// Another worker goes on with the workspace as it was pushed last. An occasion that is delivered to it again is stored once.
	second, _ := c.worker("w2", yaml)
	if got := sh("cat a b"); got != "one\ntwo\n" {
		t.Errorf("the workspace on another worker: %q", got)
	}
	old := who
	info, err = cl.SessionInfo(c.ctx, "t1")
	must(t, err)
	who.Session, who.Epoch = info.ID, info.Epoch
	run(second, finish, info.Workspace)
	if got := c.messages(); len(got) != 2 || got[0].Text != "hello" || got[1].Text != "hi" {
		t.Errorf("%d messages", len(got))
	}

	// Whoever still believes to own the thread pushes nothing.
	stale := c.t.TempDir()
	must(t, os.WriteFile(filepath.Join(stale, "a"), []byte("stale"), 0o600))
	for _, c2 := range []*hooks.Chains{first, second} {
		failed, err := c2.Run(c.ctx, tpl, schemas.HookData{Phase: schemas.PhaseTerminate, Occasion: "stale", Conversation: old}, stale, nil)
		if err != nil || len(failed) != 1 || failed[0] != schemas.HookPush || c2.Pending() != 0 {
			t.Error(failed, err, c2.Pending())
		}
	}
	entries, err := os.ReadDir(filepath.Join(c.dir, "kept", "default", "default", "t1", ".sandbox-state.d", "versions"))
	if err != nil || len(entries) != 1 { // the first push's; the second one's is the current state
		t.Errorf("%d versions, %v", len(entries), err)
	}
}

func TestARequestHookOverNATS(t *testing.T) {
	c := newCell(t)
	chains, _ := c.worker("w1", "name: any\n")
	who := schemas.Conversation{Tenant: schemas.DefaultTenant, Thread: "t1", Session: "s1", Epoch: 1}
	critical := true
	ask := func(subject string, timeout int64) error {
		tpl := &schemas.Template{Name: "tpl", Hooks: map[schemas.Phase][]schemas.HookSpec{
			schemas.PhaseTerminate: {{Subject: subject, Critical: &critical, TimeoutMS: timeout}},
		}}
		_, err := chains.Run(c.ctx, tpl, schemas.HookData{Phase: schemas.PhaseTerminate, Occasion: subject, Conversation: who}, "", nil)
		return err
	}
	answer := func(subject string, f func(*nats.Msg)) {
		_, err := c.raw.Subscribe(subject, f)
		must(t, err)
	}
	answer("mine.ok", func(m *nats.Msg) {
		if !strings.Contains(string(m.Data), `"occasion":"mine.ok"`) {
			t.Errorf("%s", m.Data)
		}
		_ = m.Respond(nil)
	})
	answer("mine.no", func(m *nats.Msg) { _ = m.Respond([]byte(`{"code":"policy_denied","message":"not today"}`)) })
	answer("mine.never", func(*nats.Msg) {})
	must(t, c.raw.Flush())
	must(t, ask("mine.ok", 0))
	wantCode(t, ask("mine.no", 0), schemas.CodePolicyDenied)
	wantCode(t, ask("mine.never", 50), schemas.CodeDeadlineExceeded)
	err := ask("mine.nobody", 0)
	wantCode(t, err, schemas.CodeUnavailable)
	if !strings.Contains(err.Error(), "no responder on mine.nobody") {
		t.Error(err)
	}
}
