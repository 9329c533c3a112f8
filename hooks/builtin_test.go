package hooks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

// kept is a workspace's place, the history and the sessions of a test, written into a notebook. Only what must fail on demand is
// of this kind; the real ones are tested where they are wired.
type kept struct {
	n  *notebook
	mu sync.Mutex

	session schemas.Session
	fail    error
	report  *schemas.SyncReport
}

func (k *kept) failWith(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = err
}

func (k *kept) sync(what string) (*schemas.SyncReport, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n.write(what)
	return k.report, k.fail
}

func (k *kept) Pull(context.Context, *hooks.Call) (*schemas.SyncReport, error) { return k.sync("pull") }

func (k *kept) Push(_ context.Context, c *hooks.Call) (*schemas.SyncReport, error) {
	return k.sync("push " + c.Occasion)
}

func (k *kept) SaveMessage(_ context.Context, tenant string, m *schemas.Message) (uint64, error) {
	k.n.write("save " + tenant + " " + m.Text)
	return 7, k.fail
}

func (k *kept) ChangeSession(_ context.Context, _ schemas.Conversation, change func(*schemas.Session)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.session)
	return nil
}

func keeping(t testing.TB, cfg hooks.Config) (*hooks.Chains, *kept, *notebook) {
	n := newNotebook()
	k := &kept{n: n, report: &schemas.SyncReport{Version: "v1"}}
	cfg.Workspace, cfg.Messages, cfg.Sessions = k, k, k
	return chains(t, n, cfg), k, n
}

var full = &schemas.Template{Name: "tpl", Sync: &schemas.TemplateSync{}, Agent: &schemas.TemplateAgent{}}

func TestBuiltinsOfAConversation(t *testing.T) {
	c, k, n := keeping(t, hooks.Config{})
	ctx := patient(t)
	run := func(d schemas.HookData) {
		t.Helper()
		if failed, err := c.Run(ctx, full, d, "", nil); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
	}
	run(data(schemas.PhaseColdStart, "s1.3"))
	n.wantLines(t, "pull")
	n.wantEvents(t, "hook.started pull-workspace", "sync.pulled", "hook.finished pull-workspace")
	said := data(schemas.PhaseMessage, "p1")
	said.Message = &schemas.Message{Thread: "t1", Process: "p1", Role: schemas.RoleUser, Text: "hello"}
	run(said)
	n.wantLines(t, "save default hello")
	for _, ev := range n.events {
		if ev.Process != "p1" || ev.Subject != "p1" || strings.Contains(string(ev.Data), "hello") {
			t.Errorf("%+v %s", ev, ev.Data)
		}
	}
	n.wantEvents(t, "hook.started save-message", "message.saved", "hook.finished save-message")
	done := data(schemas.PhaseStreamFinish, "p1")
	done.Message = &schemas.Message{Thread: "t1", Process: "p1", Role: schemas.RoleAgent, Text: "answer"}
	done.Usage = &schemas.Usage{InputTokens: 3, OutputTokens: 4}
	run(done)
	n.wantLines(t, "save default answer", "push p1")
	n.wantEvents(t, "hook.started save-message", "message.saved", "hook.finished save-message", "hook.started add-tokens", "hook.finished add-tokens",
		"hook.started push-workspace", "sync.pushed", "hook.finished push-workspace")
	// A worker that was restarted knows nothing of it: what counts must not count twice.
	other := chains(t, n, hooks.Config{Workspace: k, Messages: k, Sessions: k})
	if _, err := other.Run(ctx, full, done, "", nil); err != nil {
		t.Fatal(err)
	}
	if s := k.session; s.Messages != 1 || s.Usage != *done.Usage || s.Version != "v1" {
		t.Errorf("%+v", s)
	}
	_, _ = n.told(t)
	n.wantLines(t, "save default answer", "push p1")
	run(data(schemas.PhaseTerminate, "s1.3"))
	n.wantLines(t, "push s1.3")
	n.wantEvents(t, "hook.started push-workspace", "sync.pushed", "hook.finished push-workspace", "hook.started clean-up", "hook.finished clean-up")
	run(said) // it was forgotten
	n.wantLines(t, "save default hello")
}

func TestConflictsAndCriticalPulls(t *testing.T) {
	c, k, n := keeping(t, hooks.Config{})
	k.report = &schemas.SyncReport{Conflicts: []string{"a"}}
	k.failWith(schemas.Errorf(schemas.CodeConflict, "a changed on both sides"))
	_, err := c.Run(patient(t), full, data(schemas.PhaseColdStart, "s1.3"), "", nil)
	wantCode(t, err, schemas.CodeConflict)
	n.wantEvents(t, "hook.started pull-workspace", "sync.conflict", "hook.failed pull-workspace")
	d := data(schemas.PhaseMessage, "p1") // without a message
	failed, err := c.Run(patient(t), full, d, "", nil)
	if err != nil || len(failed) != 1 {
		t.Error(failed, err)
	}
}

// retrying runs the loop of retries until the test's end.
func retrying(t *testing.T, c *hooks.Chains) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Retry(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestALaterPushStandsForAFailedOne(t *testing.T) {
	c, k, n := keeping(t, hooks.Config{RetryFirst: time.Second})
	tpl := &schemas.Template{Name: "tpl", Sync: &schemas.TemplateSync{}}
	k.failWith(schemas.Errorf(schemas.CodeUnavailable, "down"))
	_, err := c.Run(patient(t), tpl, data(schemas.PhaseStreamFinish, "p1"), "", nil)
	must(t, err)
	k.failWith(nil)
	_, err = c.Run(patient(t), tpl, data(schemas.PhaseStreamFinish, "p2"), "", nil)
	must(t, err)
	if left := c.Pending(); left != 0 {
		t.Errorf("%d pushes are still to be tried again", left)
	}
	n.wantLines(t, "push p1", "push p2")
}

func TestAFailedPushIsTriedAgain(t *testing.T) {
	c, k, n := keeping(t, hooks.Config{RetryFirst: time.Millisecond, RetryLongest: 5 * time.Millisecond})
	retrying(t, c)
	k.failWith(schemas.Errorf(schemas.CodeUnavailable, "the store is down"))
	failed, err := c.Run(patient(t), full, data(schemas.PhaseTerminate, "s1.3"), "", nil)
	if err != nil || len(failed) != 1 {
		t.Fatal(failed, err)
	}
	n.wait(t, func() bool { return len(n.lines) >= 4 })
	k.failWith(nil)
	pushed := func() (count int) {
		for _, ev := range n.events {
			if ev.Type == schemas.TypeSyncPushed {
				count++
			}
		}
		return count
	}
	n.wait(t, func() bool { return pushed() == 1 && n.events[len(n.events)-1].Type == schemas.TypeHookFinished })
	_, runs := n.told(t)
	last := runs[len(runs)-1]
	if last.Attempt < 5 || last.Hook != schemas.HookPush || last.Occasion != "s1.3" {
		t.Errorf("%+v", last)
	}
}

func TestWhatNoWaitingMendsIsNotTriedAgain(t *testing.T) {
	c, k, n := keeping(t, hooks.Config{RetryFirst: time.Millisecond})
	retrying(t, c)
	tpl := &schemas.Template{Name: "tpl", Sync: &schemas.TemplateSync{}}
	for _, code := range []schemas.Code{schemas.CodeLost, schemas.CodeConflict, schemas.CodeNotFound, schemas.CodeInvalidArgument} {
		k.failWith(schemas.Errorf(code, "no"))
		_, err := c.Run(patient(t), tpl, data(schemas.PhaseStreamFinish, string(code)), "", nil)
		must(t, err)
	}
	k.failWith(nil)
	_, err := c.Run(patient(t), tpl, data(schemas.PhaseStreamFinish, "p9"), "", nil)
	must(t, err)
	n.wantLines(t, "push lost", "push conflict", "push not_found", "push invalid_argument", "push p9")
}
