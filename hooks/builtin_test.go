package hooks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// fakeStore is the workspace store, the message history and the sessions of a test. It writes each call to a recorder, and fails
// on demand. Package node tests the real ones.
type fakeStore struct {
	r  *recorder
	mu sync.Mutex

	session schemas.Session
	err     error
	report  *schemas.SyncReport
}

func (s *fakeStore) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeStore) sync(line string) (*schemas.SyncReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.write(line)
	return s.report, s.err
}

func (s *fakeStore) Pull(context.Context, *hooks.Call) (*schemas.SyncReport, error) {
	return s.sync("pull")
}

func (s *fakeStore) Push(_ context.Context, c *hooks.Call) (*schemas.SyncReport, error) {
	return s.sync("push " + c.Occasion)
}

func (s *fakeStore) SaveMessage(_ context.Context, tenant string, m *schemas.Message) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r.write("save " + tenant + " " + m.Text)
	return 7, s.err
}

func (s *fakeStore) ChangeSession(_ context.Context, _ schemas.Conversation, change func(*schemas.Session)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.session)
	return nil
}

func newChainsWithStore(t testing.TB, cfg hooks.Config) (*hooks.Chains, *fakeStore, *recorder) {
	r := newRecorder()
	s := &fakeStore{r: r, report: &schemas.SyncReport{Version: "v1"}}
	cfg.Workspace, cfg.Messages, cfg.Sessions = s, s, s
	return newChains(t, r, cfg), s, r
}

var (
	fullTemplate = &schemas.Template{Name: "tpl", Sync: &schemas.TemplateSync{}, Agent: &schemas.TemplateAgent{}}
	syncTemplate = &schemas.Template{Name: "tpl", Sync: &schemas.TemplateSync{}}
)

func TestBuiltinsOfConversation(t *testing.T) {
	c, s, r := newChainsWithStore(t, hooks.Config{})
	mustRun(t, c, fullTemplate, data(schemas.PhaseColdStart, "s1.3"))
	r.wantLines(t, "pull")
	r.wantEvents(t, "hook.started pull-workspace", "sync.pulled", "hook.finished pull-workspace")

	prompt := data(schemas.PhaseMessage, "p1")
	prompt.Message = &schemas.Message{Thread: "t1", Process: "p1", Role: schemas.RoleUser, Text: "hello"}
	mustRun(t, c, fullTemplate, prompt)
	r.wantLines(t, "save default hello")
	for _, ev := range r.events {
		testkit.Equal(t, "process of "+string(ev.Type), ev.Process, "p1")
		testkit.Equal(t, "subject of "+string(ev.Type), ev.Subject, "p1")
		if strings.Contains(string(ev.Data), "hello") {
			t.Errorf("%s contains the prompt: %s", ev.Type, ev.Data)
		}
	}
	r.wantEvents(t, "hook.started save-message", "message.saved", "hook.finished save-message")

	answer := data(schemas.PhaseStreamFinish, "p1")
	answer.Message = &schemas.Message{Thread: "t1", Process: "p1", Role: schemas.RoleAgent, Text: "answer"}
	answer.Usage = &schemas.Usage{InputTokens: 3, OutputTokens: 4}
	mustRun(t, c, fullTemplate, answer)
	r.wantLines(t, "save default answer", "push p1")
	r.wantEvents(t, "hook.started save-message", "message.saved", "hook.finished save-message", "hook.started add-tokens", "hook.finished add-tokens",
		"hook.started push-workspace", "sync.pushed", "hook.finished push-workspace")

	// A restarted worker runs the hooks again, but counts nothing twice.
	restarted := newChains(t, r, hooks.Config{Workspace: s, Messages: s, Sessions: s})
	mustRun(t, restarted, fullTemplate, answer)
	testkit.Equal(t, "messages", s.session.Messages, int64(1))
	testkit.Equal(t, "usage", s.session.Usage, *answer.Usage)
	testkit.Equal(t, "version", s.session.Version, "v1")
	_, _ = r.take(t)
	r.wantLines(t, "save default answer", "push p1")

	mustRun(t, c, fullTemplate, data(schemas.PhaseTerminate, "s1.3"))
	r.wantLines(t, "push s1.3")
	r.wantEvents(t, "hook.started push-workspace", "sync.pushed", "hook.finished push-workspace", "hook.started clean-up", "hook.finished clean-up")
	mustRun(t, c, fullTemplate, prompt) // clean-up dropped the occasion
	r.wantLines(t, "save default hello")
}

func TestPullConflictFailsColdStart(t *testing.T) {
	c, s, r := newChainsWithStore(t, hooks.Config{})
	s.report = &schemas.SyncReport{Conflicts: []string{"a"}}
	s.failWith(schemas.Errorf(schemas.CodeConflict, "a changed on both sides"))
	_, err := run(t, c, fullTemplate, data(schemas.PhaseColdStart, "s1.3"))
	testkit.WantCode(t, err, schemas.CodeConflict)
	r.wantEvents(t, "hook.started pull-workspace", "sync.conflict", "hook.failed pull-workspace")
}

func TestSaveMessageFailsWithoutMessage(t *testing.T) {
	c, _, _ := newChainsWithStore(t, hooks.Config{})
	wantFailed(t, c, fullTemplate, data(schemas.PhaseMessage, "p1"), "save-message")
}

// startRetry runs the retry loop until the test ends.
func startRetry(t *testing.T, c *hooks.Chains) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Retry(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Retry = %v, want context.Canceled", err)
		}
	})
}

func TestLaterPushReplacesRetry(t *testing.T) {
	c, s, r := newChainsWithStore(t, hooks.Config{RetryFirst: time.Second})
	s.failWith(schemas.Errorf(schemas.CodeUnavailable, "down"))
	wantFailed(t, c, syncTemplate, data(schemas.PhaseStreamFinish, "p1"), "push-workspace")
	testkit.Equal(t, "pending retries after a failed push", c.Pending(), 1)
	s.failWith(nil)
	mustRun(t, c, syncTemplate, data(schemas.PhaseStreamFinish, "p2"))
	testkit.Equal(t, "pending retries after a push", c.Pending(), 0)
	r.wantLines(t, "push p1", "push p2")
}

func TestFailedPushIsRetried(t *testing.T) {
	c, s, r := newChainsWithStore(t, hooks.Config{RetryFirst: time.Millisecond, RetryLongest: 5 * time.Millisecond})
	startRetry(t, c)
	s.failWith(schemas.Errorf(schemas.CodeUnavailable, "the store is down"))
	wantFailed(t, c, fullTemplate, data(schemas.PhaseTerminate, "s1.3"), "push-workspace")
	r.wait(t, "fourth push", func() bool { return len(r.lines) >= 4 })
	s.failWith(nil)
	r.wait(t, "end of a successful push", func() bool {
		pushed := 0
		for _, ev := range r.events {
			if ev.Type == schemas.TypeSyncPushed {
				pushed++
			}
		}
		return pushed == 1 && r.events[len(r.events)-1].Type == schemas.TypeHookFinished
	})
	_, runs := r.take(t)
	last := runs[len(runs)-1]
	testkit.Equal(t, "hook", last.Hook, schemas.HookPush)
	testkit.Equal(t, "occasion", last.Occasion, "s1.3")
	if last.Attempt < 5 {
		t.Errorf("attempt = %d, want at least 5", last.Attempt)
	}
}
