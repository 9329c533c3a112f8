package hooks_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func message(phase schemas.Phase, process string, role schemas.Role, text string) schemas.HookData {
	d := data(phase, process)
	d.Message = &schemas.Message{Thread: "t1", Process: process, Role: role, Text: text}
	return d
}

// Promises 14: a prompt that could not be stored is stored later, before its answer, and counted once.
func TestUnsavedMessagesAreRetriedInOrder(t *testing.T) {
	c, s, r := newChainsWithStore(t, hooks.Config{RetryFirst: time.Millisecond, RetryLongest: 5 * time.Millisecond})
	tpl := &schemas.Template{Name: "tpl", Agent: &schemas.TemplateAgent{}}
	s.failWith(schemas.Errorf(schemas.CodeUnavailable, "NATS is away"))
	wantFailed(t, c, tpl, message(schemas.PhaseMessage, "p1", schemas.RoleUser, "hello"), schemas.HookSave)
	wantFailed(t, c, tpl, message(schemas.PhaseStreamFinish, "p1", schemas.RoleAgent, "hi"), schemas.HookSave)
	wantFailed(t, c, tpl, message(schemas.PhaseMessage, "p2", schemas.RoleUser, "again"), schemas.HookSave)
	r.wantLines(t, "save default hello", "save default hello", "save default hello")
	s.failWith(nil)
	startRetry(t, c)
	r.wait(t, "three saved messages", func() bool { return len(r.lines) >= 3 })
	r.wantLines(t, "save default hello", "save default hi", "save default again")
	r.wait(t, "the end of the retry", func() bool { return c.Pending() == 0 })
	testkit.Equal(t, "messages of the session", s.session.Messages, int64(2))

	// A message that can never be stored does not keep the next one waiting.
	s.failWith(schemas.Errorf(schemas.CodeInvalidArgument, "no"))
	wantFailed(t, c, tpl, message(schemas.PhaseMessage, "p3", schemas.RoleUser, "bad"), schemas.HookSave)
	s.failWith(nil)
	mustRun(t, c, tpl, message(schemas.PhaseMessage, "p4", schemas.RoleUser, "good"))
	r.wantLines(t, "save default bad", "save default good")
}

// Promises 14: messages that could not be stored before the worker was killed are stored when it is back, the prompt before its answer.
func TestUnsavedMessagesOutliveTheWorker(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "unsaved")
	c, s, _ := newChainsWithStore(t, hooks.Config{Unsaved: dir, RetryFirst: time.Hour})
	tpl := &schemas.Template{Name: "tpl", Agent: &schemas.TemplateAgent{}}
	s.failWith(schemas.Errorf(schemas.CodeUnavailable, "NATS is away"))
	wantFailed(t, c, tpl, message(schemas.PhaseMessage, "p1", schemas.RoleUser, "hello"), schemas.HookSave)
	wantFailed(t, c, tpl, message(schemas.PhaseStreamFinish, "p1", schemas.RoleAgent, "hi"), schemas.HookSave)
	next, s, r := newChainsWithStore(t, hooks.Config{Unsaved: dir, RetryFirst: time.Millisecond})
	startRetry(t, next)
	r.wait(t, "two saved messages", func() bool { return len(r.lines) >= 2 })
	r.wantLines(t, "save default hello", "save default hi")
	r.wait(t, "the end of the retry", func() bool { return next.Pending() == 0 })
	testkit.Equal(t, "messages of the session", s.session.Messages, int64(1))
	left, err := os.ReadDir(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "files that are left", len(left), 0)
}
