package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

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

// chains are those of a worker that runs until the test's end, or until stop is called.
func (c *cell) chains(worker string) (_ *hooks.Chains, stop func()) {
	c.t.Helper()
	n := New(Config{Worker: worker, Log: zerolog.Nop(), PrivateHooks: true}, c.conn)
	chains, recorder, err := n.chains()
	must(c.t, err)
	stop = n.runHooks(c.ctx, chains, recorder)
	c.t.Cleanup(stop)
	return chains, stop
}

// session saves a session of thread t1, and is the conversation of it.
func (c *cell) session(owner string, epoch, revision uint64) (schemas.Conversation, uint64) {
	c.t.Helper()
	s := &schemas.Session{ID: "s1", Tenant: schemas.DefaultTenant, Thread: "t1", Owner: owner, Epoch: epoch}
	revision, err := c.conn.SaveSession(c.ctx, s, revision)
	must(c.t, err)
	return schemas.Conversation{Tenant: s.Tenant, Thread: s.Thread, Agent: "tpl", Session: s.ID, Epoch: epoch}, revision
}

// folder is a fresh folder with these files.
func (c *cell) folder(files map[string]string) string {
	c.t.Helper()
	dir := c.t.TempDir()
	for name, text := range files {
		must(c.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func (c *cell) types() (out []string) {
	c.t.Helper()
	_, err := c.conn.ReadEvents(c.ctx, events.Filter{}, 1, func(ev *schemas.Event) error {
		out = append(out, string(ev.Type))
		return nil
	})
	must(c.t, err)
	return out
}

func (c *cell) messages() (out []*schemas.Message) {
	c.t.Helper()
	_, err := c.conn.Messages(c.ctx, schemas.DefaultTenant, "t1", 1, func(m *schemas.Message) error {
		out = append(out, m)
		return nil
	})
	must(c.t, err)
	return out
}

func TestAConversationsHooksOverNATSAndAFolder(t *testing.T) {
	c := newCell(t)
	tpl := &schemas.Template{
		Name: "tpl", Sync: &schemas.TemplateSync{Location: "file://" + c.dir + "/kept/{tenant}/{agent}/{thread}"},
		Agent: &schemas.TemplateAgent{Command: []string{"agent"}},
	}
	first, stop := c.chains("w1")
	must(t, first.Check(tpl))
	who, revision := c.session("w1", 1, 0)
	run := func(chains *hooks.Chains, d schemas.HookData, dir string) {
		t.Helper()
		d.Conversation = who
		if failed, err := chains.Run(c.ctx, tpl, d, dir, nil); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
	}
	dir := c.folder(map[string]string{"a": "one"})
	run(first, schemas.HookData{Phase: schemas.PhaseColdStart, Occasion: "s1.1"}, dir)
	prompt := &schemas.Message{Thread: "t1", Session: "s1", Process: "p1", Role: schemas.RoleUser, Text: "hello", Time: time.Now().UTC()}
	answer := &schemas.Message{Thread: "t1", Session: "s1", Process: "p1", Role: schemas.RoleAgent, Text: "hi", Time: time.Now().UTC()}
	run(first, schemas.HookData{Phase: schemas.PhaseMessage, Occasion: "p1", Message: prompt}, dir)
	finish := schemas.HookData{Phase: schemas.PhaseStreamFinish, Occasion: "p1", Message: answer, Usage: &schemas.Usage{InputTokens: 1}}
	run(first, finish, dir)
	stop()
	want := strings.Fields(`hook.started sync.pulled hook.finished
		hook.started message.saved hook.finished
		hook.started message.saved hook.finished hook.started hook.finished hook.started sync.pushed hook.finished`)
	if got := c.types(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("events %q\nwant   %q", got, want)
	}

	// Another worker takes over, with the workspace as it was pushed last. An occasion that is delivered to it again is stored once.
	second, _ := c.chains("w2")
	who, revision = c.session("w2", 2, revision)
	elsewhere := c.folder(nil)
	run(second, schemas.HookData{Phase: schemas.PhaseColdStart, Occasion: "s1.2"}, elsewhere)
	if text, err := os.ReadFile(filepath.Join(elsewhere, "a")); string(text) != "one" {
		t.Errorf("the workspace there: %q, %v", text, err)
	}
	run(second, finish, elsewhere)
	if got := c.messages(); len(got) != 2 || got[0].Text != "hello" || got[1].Text != "hi" {
		t.Errorf("%d messages", len(got))
	}

	// The first one, woken after its session has gone, pushes nothing.
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("stale"), 0o600))
	stale, _ := c.chains("w1")
	old := who
	old.Epoch = 1
	failed, err := stale.Run(c.ctx, tpl, schemas.HookData{Phase: schemas.PhaseTerminate, Occasion: "s1.1", Conversation: old}, dir, nil)
	if err != nil || len(failed) != 1 || failed[0] != hooks.PushWorkspace || stale.Pending() != 0 {
		t.Error(failed, err, stale.Pending())
	}
	third := c.folder(nil)
	who, _ = c.session("w2", 3, revision)
	run(second, schemas.HookData{Phase: schemas.PhaseColdStart, Occasion: "s1.3"}, third)
	if text, _ := os.ReadFile(filepath.Join(third, "a")); string(text) != "one" {
		t.Errorf("the workspace after a stale push: %q", text)
	}
}

func TestARequestHookOverNATS(t *testing.T) {
	c := newCell(t)
	chains, _ := c.chains("w1")
	who, _ := c.session("w1", 1, 0)
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
	if !strings.Contains(err.Error(), "nobody listens on mine.nobody") {
		t.Error(err)
	}
}

func TestSecretsAreReadByReference(t *testing.T) {
	t.Setenv("SLUICE_SECRET_A", "one")
	t.Setenv("OTHER", "two")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, good := range []struct {
		ref  schemas.SecretRef
		want string
	}{
		{schemas.SecretRef{Env: "SLUICE_SECRET_A"}, "one"}, {schemas.SecretRef{File: write("f", "two\r\nthree\n")}, "two"}, {schemas.SecretRef{File: write("g", "end")}, "end"},
	} {
		if got, err := readSecret(good.ref); err != nil || got != good.want {
			t.Errorf("%+v: %q %v", good.ref, got, err)
		}
	}
	for _, bad := range []schemas.SecretRef{
		{}, {Env: "OTHER"}, {Env: "SLUICE_SECRET_B"}, {Env: "SLUICE_SECRET_A", File: "/x"}, {File: "f"}, {File: dir}, {File: write("empty", "\n")}, {File: filepath.Join(dir, "none")},
	} {
		if got, err := readSecret(bad); err == nil || got != "" {
			t.Errorf("%+v: %q", bad, got)
		}
	}
}

func TestTheFenceGoesByKV(t *testing.T) {
	c := newCell(t)
	n := New(Config{Worker: "w1"}, c.conn)
	who, _ := c.session("w1", 4, 0)
	must(t, n.fence(c.ctx, who))
	for _, change := range []func(*schemas.Conversation){
		func(w *schemas.Conversation) { w.Epoch = 3 }, func(w *schemas.Conversation) { w.Session = "s0" }, func(w *schemas.Conversation) { w.Thread = "t2" },
	} {
		other := who
		change(&other)
		if err := n.fence(c.ctx, other); !errors.Is(err, schemas.ErrLost) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}
