package hooks_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient bounds a wait that a broken program would not end.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

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

// notebook gathers events, and whatever hooks write into it.
type notebook struct {
	mu     sync.Mutex
	events []*schemas.Event
	lines  []string
	more   chan struct{}
}

func newNotebook() *notebook { return &notebook{more: make(chan struct{}, 1)} }

func (n *notebook) record(_ context.Context, ev *schemas.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, ev)
	n.signal()
}

func (n *notebook) write(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
	n.signal()
}

func (n *notebook) signal() {
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// wait returns once enough says yes.
func (n *notebook) wait(t testing.TB, enough func() bool) {
	t.Helper()
	ctx := patient(t)
	for {
		n.mu.Lock()
		ok := enough()
		n.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-n.more:
		case <-ctx.Done():
			t.Fatal("it did not come to pass")
		}
	}
}

func (n *notebook) wantLines(t testing.TB, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.lines, want) {
		t.Errorf("what ran: %q, want %q", n.lines, want)
	}
	n.lines = nil
}

// told are the events since the last call, as type and hook.
func (n *notebook) told(t testing.TB) (out []string, runs []schemas.HookRun) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ev := range n.events {
		text := string(ev.Type)
		var r schemas.HookRun
		if ev.Type == schemas.TypeHookStarted || ev.Type == schemas.TypeHookFinished || ev.Type == schemas.TypeHookFailed {
			must(t, ev.Decode(&r))
			text += " " + r.Hook
		}
		if ev.Source != "w1" || ev.Thread != "t1" || ev.Session != "s1" || ev.Tenant != "default" || ev.ID == "" {
			t.Errorf("an event that is not of this session: %+v", ev)
		}
		out, runs = append(out, text), append(runs, r)
	}
	n.events = nil
	return out, runs
}

func (n *notebook) wantEvents(t testing.TB, want ...string) []schemas.HookRun {
	t.Helper()
	got, runs := n.told(t)
	if !slices.Equal(got, want) {
		t.Errorf("events: %q\nwant    %q", got, want)
	}
	return runs
}

// messageHook is a Go hook of the phase message.
type messageHook func(ctx context.Context, call *hooks.Call) error

func (f messageHook) OnMessage(ctx context.Context, call *hooks.Call) error { return f(ctx, call) }

// all is a Go hook of every phase.
type all struct{ n *notebook }

func (a all) OnColdStart(_ context.Context, c *hooks.Call) error    { return a.on(c) }
func (a all) OnMessage(_ context.Context, c *hooks.Call) error      { return a.on(c) }
func (a all) OnStreamFinish(_ context.Context, c *hooks.Call) error { return a.on(c) }
func (a all) OnTerminate(_ context.Context, c *hooks.Call) error    { return a.on(c) }

func (a all) on(c *hooks.Call) error {
	a.n.write(string(c.Phase) + " " + c.Occasion)
	return nil
}

// chains are hooks by name, in a worker of their own.
func chains(t testing.TB, n *notebook, cfg hooks.Config) *hooks.Chains {
	t.Helper()
	cfg.Worker, cfg.Record = "w1", n.record
	c, err := hooks.New(cfg)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// template has these hooks in one phase.
func template(phase schemas.Phase, specs ...schemas.HookSpec) *schemas.Template {
	return &schemas.Template{Name: "tpl", Hooks: map[schemas.Phase][]schemas.HookSpec{phase: specs}}
}

func data(phase schemas.Phase, occasion string) schemas.HookData {
	return schemas.HookData{Phase: phase, Occasion: occasion, Conversation: schemas.Conversation{
		Tenant: schemas.DefaultTenant, Thread: "t1", Agent: "tpl", Session: "s1", Epoch: 3,
	}}
}

func yes() *bool { v := true; return &v }

var errBroken = errors.New("broken")
