package hooks_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// recorder collects events, and lines that hooks write.
type recorder struct {
	mu      sync.Mutex
	events  []*schemas.Event
	lines   []string
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}, 1)} }

func (r *recorder) record(_ context.Context, ev *schemas.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	r.signal()
}

func (r *recorder) write(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	r.signal()
}

func (r *recorder) signal() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// wait returns once cond, which is called with the lock held, is true. what names the condition, which may come true without a record.
func (r *recorder) wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx := testkit.Context(t)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no %s within %s", what, testkit.Timeout)
		}
	}
}

// wantLines checks the lines since the last call.
func (r *recorder) wantLines(t testing.TB, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.lines, want) {
		t.Errorf("lines = %q, want %q", r.lines, want)
	}
	r.lines = nil
}

// take returns the events since the last call, each as its type and hook.
func (r *recorder) take(t testing.TB) (events []string, runs []schemas.HookRun) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	type origin struct{ Source, Tenant, Thread, Session string }
	for _, ev := range r.events {
		text := string(ev.Type)
		var run schemas.HookRun
		if ev.Type == schemas.TypeHookStarted || ev.Type == schemas.TypeHookFinished || ev.Type == schemas.TypeHookFailed {
			testkit.Must(t, ev.Decode(&run))
			text += " " + run.Hook
		}
		testkit.Equal(t, "origin of "+text, origin{ev.Source, ev.Tenant, ev.Thread, ev.Session}, origin{"w1", "default", "t1", "s1"})
		if ev.ID == "" {
			t.Errorf("%s has no id", text)
		}
		events, runs = append(events, text), append(runs, run)
	}
	r.events = nil
	return events, runs
}

func (r *recorder) wantEvents(t testing.TB, want ...string) []schemas.HookRun {
	t.Helper()
	got, runs := r.take(t)
	if !slices.Equal(got, want) {
		t.Errorf("events = %q\nwant     %q", got, want)
	}
	return runs
}

// messageHook is a Go hook of phase message.
type messageHook func(ctx context.Context, call *hooks.Call) error

func (f messageHook) OnMessage(ctx context.Context, call *hooks.Call) error { return f(ctx, call) }

// writeHook is a Go hook of every phase. It writes the phase and the occasion.
type writeHook struct{ r *recorder }

func (h writeHook) OnColdStart(_ context.Context, c *hooks.Call) error    { return h.write(c) }
func (h writeHook) OnMessage(_ context.Context, c *hooks.Call) error      { return h.write(c) }
func (h writeHook) OnStreamFinish(_ context.Context, c *hooks.Call) error { return h.write(c) }
func (h writeHook) OnTerminate(_ context.Context, c *hooks.Call) error    { return h.write(c) }

func (h writeHook) write(c *hooks.Call) error {
	h.r.write(string(c.Phase) + " " + c.Occasion)
	return nil
}

// newChains returns the Chains of worker w1. They are closed after the test.
func newChains(t testing.TB, r *recorder, cfg hooks.Config) *hooks.Chains {
	t.Helper()
	cfg.Worker, cfg.Record = "w1", r.record
	c, err := hooks.New(cfg)
	testkit.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Timeout)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// run runs hooks without a workspace and a sandbox.
func run(t testing.TB, c *hooks.Chains, tpl *schemas.Template, d schemas.HookData) (failed []string, err error) {
	t.Helper()
	done, err := c.Run(testkit.Context(t), tpl, d, "", nil)
	return done.Failed, err
}

// mustRun runs hooks, which must all succeed.
func mustRun(t testing.TB, c *hooks.Chains, tpl *schemas.Template, d schemas.HookData) {
	t.Helper()
	wantFailed(t, c, tpl, d)
}

// wantFailed runs hooks without a critical failure, and checks the names of those that fail.
func wantFailed(t testing.TB, c *hooks.Chains, tpl *schemas.Template, d schemas.HookData, want ...string) {
	t.Helper()
	failed, err := run(t, c, tpl, d)
	testkit.Must(t, err)
	if !slices.Equal(failed, want) {
		t.Fatalf("failed hooks = %q, want %q", failed, want)
	}
}

// template has these hooks in one phase.
func template(phase schemas.Phase, specs ...schemas.HookSpec) *schemas.Template {
	return &schemas.Template{Name: "tpl", Hooks: map[schemas.Phase][]schemas.HookSpec{phase: specs}}
}

func data(phase schemas.Phase, occasion string) schemas.HookData {
	return schemas.HookData{Phase: phase, Occasion: occasion, Conversation: schemas.Conversation{
		Tenant: schemas.DefaultTenant, Thread: "t1", Template: "tpl", Session: "s1", Epoch: 3,
	}}
}

func yes() *bool { v := true; return &v }

var errBroken = errors.New("broken")
