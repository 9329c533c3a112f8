package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/schemas"
)

func TestEveryPhaseRunsItsHooksInOrderAndOnce(t *testing.T) {
	n := newNotebook()
	c := chains(t, n, hooks.Config{Hooks: map[string]any{"note": all{n}}})
	for _, phase := range schemas.Phases() {
		tpl := template(phase, schemas.HookSpec{Builtin: "note"}, schemas.HookSpec{Builtin: "note"}, schemas.HookSpec{Builtin: "note", Name: "third"})
		for range 2 { // the second time, it is delivered again
			failed, err := c.Run(t.Context(), tpl, data(phase, "o1"), "", nil)
			if err != nil || len(failed) > 0 {
				t.Fatal(failed, err)
			}
		}
		line := string(phase) + " o1"
		n.wantLines(t, line, line, line)
		runs := n.wantEvents(t, "hook.started note", "hook.finished note", "hook.started note#2", "hook.finished note#2", "hook.started third", "hook.finished third")
		for _, r := range runs {
			if r.Phase != phase || r.Occasion != "o1" || r.Attempt != 1 || r.Critical != (phase == schemas.PhaseColdStart) {
				t.Errorf("%+v", r)
			}
		}
		_, err := c.Run(t.Context(), tpl, data(phase, "o2"), "", nil)
		must(t, err)
		line = string(phase) + " o2"
		n.wantLines(t, line, line, line)
		_, _ = n.told(t)
	}
}

func TestAFailureThatIsNotCriticalIsToldAndRunAgain(t *testing.T) {
	n := newNotebook()
	fail := true
	c := chains(t, n, hooks.Config{Hooks: map[string]any{
		"flaky": messageHook(func(context.Context, *hooks.Call) error {
			n.write("flaky")
			if fail {
				return errBroken
			}
			return nil
		}),
		"note": all{n},
	}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "flaky"}, schemas.HookSpec{Builtin: "note"})
	failed, err := c.Run(t.Context(), tpl, data(schemas.PhaseMessage, "p1"), "", nil)
	if err != nil || len(failed) != 1 || failed[0] != "flaky" {
		t.Fatal(failed, err)
	}
	n.wantLines(t, "flaky", "message p1")
	runs := n.wantEvents(t, "hook.started flaky", "hook.failed flaky", "hook.started note", "hook.finished note")
	if runs[1].Error == nil || runs[1].Error.Message != "broken" {
		t.Errorf("%+v", runs[1])
	}
	fail = false
	failed, err = c.Run(t.Context(), tpl, data(schemas.PhaseMessage, "p1"), "", nil)
	if err != nil || len(failed) != 0 {
		t.Fatal(failed, err)
	}
	n.wantLines(t, "flaky")
	if runs := n.wantEvents(t, "hook.started flaky", "hook.finished flaky"); runs[0].Attempt != 2 {
		t.Errorf("%+v", runs[0])
	}
}

func TestACriticalFailureEndsTheOccasionWhichIsRepeatedAsAWhole(t *testing.T) {
	n := newNotebook()
	c := chains(t, n, hooks.Config{Hooks: map[string]any{
		"no":   messageHook(func(context.Context, *hooks.Call) error { return schemas.Errorf(schemas.CodePolicyDenied, "no") }),
		"note": all{n},
	}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "note"}, schemas.HookSpec{Builtin: "no", Critical: yes()}, schemas.HookSpec{Builtin: "note"})
	for range 2 {
		failed, err := c.Run(t.Context(), tpl, data(schemas.PhaseMessage, "p1"), "", nil)
		wantCode(t, err, schemas.CodePolicyDenied)
		if len(failed) != 1 || !strings.Contains(err.Error(), "hook no") {
			t.Fatal(failed, err)
		}
		n.wantLines(t, "message p1")
	}
}

func TestWhatAHookDoesWrongIsItsFailureAlone(t *testing.T) {
	n := newNotebook()
	release := make(chan struct{})
	c := chains(t, n, hooks.Config{Hooks: map[string]any{
		"panics": messageHook(func(context.Context, *hooks.Call) error { panic(strings.Repeat("much ", 1000)) }),
		"nil":    messageHook(func(_ context.Context, c *hooks.Call) error { return c.Exec(nil, nil, nil) }),
		"leaves": messageHook(func(context.Context, *hooks.Call) error { runtime.Goexit(); return nil }),
		"heeds":  messageHook(func(ctx context.Context, _ *hooks.Call) error { <-ctx.Done(); return ctx.Err() }),
		"deaf":   messageHook(func(context.Context, *hooks.Call) error { <-release; return nil }),
		"note":   all{n},
	}})
	tpl := template(schemas.PhaseMessage,
		schemas.HookSpec{Builtin: "panics"}, schemas.HookSpec{Builtin: "nil"}, schemas.HookSpec{Builtin: "leaves"},
		schemas.HookSpec{Builtin: "heeds", TimeoutMS: 5}, schemas.HookSpec{Builtin: "deaf", TimeoutMS: 5}, schemas.HookSpec{Builtin: "note"})
	failed, err := c.Run(patient(t), tpl, data(schemas.PhaseMessage, "p1"), "", nil)
	if err != nil || len(failed) != 5 {
		t.Fatal(failed, err)
	}
	n.wantLines(t, "message p1")
	_, runs := n.told(t)
	for i, want := range []schemas.Code{schemas.CodeInternal, schemas.CodeInternal, schemas.CodeInternal, schemas.CodeDeadlineExceeded, schemas.CodeDeadlineExceeded} {
		r := runs[2*i+1]
		if r.Error == nil || r.Error.Code != want || len(r.Error.Message) > 500 {
			t.Errorf("%s: %v, want %s", r.Hook, r.Error, want)
		}
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, c.Close(short), schemas.CodeDeadlineExceeded)
	close(release)
	must(t, c.Close(patient(t)))
}

func TestAnOccasionThatComesTwiceAtOnceRunsOnce(t *testing.T) {
	n := newNotebook()
	var ran atomic.Int64
	c := chains(t, n, hooks.Config{Hooks: map[string]any{"count": messageHook(func(context.Context, *hooks.Call) error {
		ran.Add(1)
		runtime.Gosched()
		return nil
	})}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "count"})
	var wg sync.WaitGroup
	const occasions = 20
	for i := range 200 {
		wg.Go(func() {
			if _, err := c.Run(patient(t), tpl, data(schemas.PhaseMessage, fmt.Sprint("p", i%occasions)), "", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if ran.Load() != occasions {
		t.Errorf("it ran %d times on %d occasions", ran.Load(), occasions)
	}
}

func TestACommandRunsInTheSandbox(t *testing.T) {
	n := newNotebook()
	c := chains(t, n, hooks.Config{})
	tpl := template(schemas.PhaseColdStart, schemas.HookSpec{Command: []string{"make", "setup"}})
	_, err := c.Run(t.Context(), tpl, data(schemas.PhaseColdStart, "s1.3"), "", func(_ context.Context, command []string, stdin []byte) error {
		n.write(strings.Join(command, " "))
		if !strings.Contains(string(stdin), `"occasion":"s1.3"`) || !strings.Contains(string(stdin), `"specversion":"1"`) {
			t.Errorf("it reads %s", stdin)
		}
		return nil
	})
	must(t, err)
	n.wantLines(t, "make setup")
	_, err = c.Run(t.Context(), tpl, data(schemas.PhaseColdStart, "s1.4"), "", nil)
	wantCode(t, err, schemas.CodeUnavailable)
	n.wantEvents(t, "hook.started command:make", "hook.finished command:make", "hook.started command:make", "hook.failed command:make")
}

func TestWhatCannotRunIsRefused(t *testing.T) {
	n := newNotebook()
	for name, hook := range map[string]any{"nothing": struct{}{}, "nil": nil, schemas.HookPull: all{n}, "a b": all{n}} {
		_, err := hooks.New(hooks.Config{Worker: "w1", Record: n.record, Hooks: map[string]any{name: hook}})
		wantCode(t, err, schemas.CodeInvalidArgument)
	}
	_, err := hooks.New(hooks.Config{Worker: "w1"})
	wantCode(t, err, schemas.CodeInvalidArgument)
	c := chains(t, n, hooks.Config{Asker: asker(nil), Hooks: map[string]any{"msg": messageHook(nil)}})
	bad := func(code schemas.Code, phase schemas.Phase, spec schemas.HookSpec) {
		t.Helper()
		tpl := template(phase, spec)
		wantCode(t, c.Check(tpl), code)
		if _, err := c.Run(t.Context(), tpl, data(phase, "o"), "", nil); phase != "later" && err == nil {
			t.Errorf("%+v ran", spec)
		}
	}
	const invalid = schemas.CodeInvalidArgument
	for _, spec := range []schemas.HookSpec{
		{}, {Builtin: "unknown"}, {Builtin: "msg", URL: "https://a/"}, {Builtin: schemas.HookPush}, {Builtin: schemas.HookCleanUp}, {Command: []string{""}},
		{Builtin: "msg", TimeoutMS: -1}, {Builtin: "msg", TimeoutMS: 1 << 62},
		{Subject: "a.*"}, {Subject: "$JS.API.x"}, {Subject: "_INBOX.x"}, {Subject: "sluice.v1.local.x"}, {Subject: "a..b"}, {Subject: "a b"}, {Subject: ".a"}, {Subject: strings.Repeat("a", 300)},
		{URL: "http://example.com/"}, {URL: "ftp://example.com/"}, {URL: "https:///x"}, {URL: "https://u:p@example.com/"}, {URL: "https:x"}, {URL: "::"},
	} {
		bad(invalid, schemas.PhaseMessage, spec)
	}
	bad(invalid, schemas.PhaseTerminate, schemas.HookSpec{Builtin: "msg"})
	bad(invalid, "later", schemas.HookSpec{Builtin: "msg"})
	bad(schemas.CodeUnavailable, schemas.PhaseMessage, schemas.HookSpec{Builtin: schemas.HookSave})
	bad(schemas.CodeUnavailable, schemas.PhaseMessage, schemas.HookSpec{URL: "https://example.com/", Secret: &schemas.SecretRef{File: "/x"}})
	if got, _ := n.told(t); len(got) > 0 {
		t.Errorf("events of what was refused: %v", got)
	}
}

func TestDefaultsAreWhatTheTemplateNeeds(t *testing.T) {
	no := false
	full := hooks.Defaults(&schemas.Template{Sync: &schemas.TemplateSync{}, Agent: &schemas.TemplateAgent{}})
	if got := fmt.Sprint(names(full[schemas.PhaseColdStart]), names(full[schemas.PhaseMessage]), names(full[schemas.PhaseStreamFinish]), names(full[schemas.PhaseTerminate])); got !=
		"[pull-workspace] [save-message] [save-message add-tokens push-workspace] [push-workspace clean-up]" {
		t.Error(got)
	}
	if got := hooks.Defaults(&schemas.Template{Sync: &schemas.TemplateSync{Init: &no}}); len(got[schemas.PhaseColdStart]) > 0 {
		t.Error(got)
	}
	if got := hooks.Defaults(&schemas.Template{}); len(got) > 0 {
		t.Error(got)
	}
}

func names(specs []schemas.HookSpec) (out []string) {
	for _, s := range specs {
		out = append(out, s.Builtin)
	}
	return out
}

// asker answers requests.
type asker func(subject string, body []byte) ([]byte, error)

func (f asker) Ask(_ context.Context, subject string, body []byte) ([]byte, error) {
	return f(subject, body)
}

func TestASubjectsAnswerIsTheHooksEnd(t *testing.T) {
	n := newNotebook()
	var answer []byte
	c := chains(t, n, hooks.Config{Asker: asker(func(subject string, body []byte) ([]byte, error) {
		if subject != "my.hook" || !strings.Contains(string(body), `"thread":"t1"`) {
			t.Errorf("%s: %s", subject, body)
		}
		return answer, nil
	})})
	tpl := template(schemas.PhaseTerminate, schemas.HookSpec{Subject: "my.hook", Critical: yes()})
	for i, want := range map[string]schemas.Code{
		"": "", `{"code":"policy_denied","message":"no"}`: schemas.CodePolicyDenied, `{}`: schemas.CodeInternal, "ok": schemas.CodeInternal, "null": schemas.CodeInternal,
		strings.Repeat("x", schemas.MaxControlBytes+1): schemas.CodeTooLarge, `{"code":"x","message":"` + strings.Repeat("m", 60000) + `"}`: "x",
	} {
		answer = []byte(i)
		_, err := c.Run(t.Context(), tpl, data(schemas.PhaseTerminate, "s1."+clipped(i)), "", nil)
		wantCode(t, err, want)
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func clipped(s string) string { return s[:min(len(s), 20)] }

func TestAnEndedContextEndsTheWaitForAnOccasion(t *testing.T) {
	n := newNotebook()
	inside, release := make(chan struct{}), make(chan struct{})
	c := chains(t, n, hooks.Config{Hooks: map[string]any{"slow": messageHook(func(context.Context, *hooks.Call) error {
		close(inside)
		<-release
		return nil
	})}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "slow"})
	first := make(chan error, 1)
	go func() {
		_, err := c.Run(patient(t), tpl, data(schemas.PhaseMessage, "p1"), "", nil)
		first <- err
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, tpl, data(schemas.PhaseMessage, "p1"), "", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(release)
	must(t, <-first)
}
