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
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestRunRunsHooksInOrderOncePerOccasion(t *testing.T) {
	r := newRecorder()
	c := newChains(t, r, hooks.Config{Hooks: map[string]any{"write": writeHook{r}}})
	for _, phase := range schemas.Phases() {
		tpl := template(phase, schemas.HookSpec{Builtin: "write"}, schemas.HookSpec{Builtin: "write"}, schemas.HookSpec{Builtin: "write", Name: "third"})
		for range 2 { // the second run repeats the occasion
			mustRun(t, c, tpl, data(phase, "o1"))
		}
		line := string(phase) + " o1"
		r.wantLines(t, line, line, line)
		runs := r.wantEvents(t, "hook.started write", "hook.finished write", "hook.started write#2", "hook.finished write#2", "hook.started third", "hook.finished third")
		for _, got := range runs {
			want := schemas.HookRun{Hook: got.Hook, Phase: phase, Occasion: "o1", Attempt: 1, Critical: phase == schemas.PhaseColdStart, DurationMS: got.DurationMS}
			testkit.Equal(t, "hook run", got, want)
		}
		mustRun(t, c, tpl, data(phase, "o2"))
		line = string(phase) + " o2"
		r.wantLines(t, line, line, line)
		_, _ = r.take(t)
	}
}

func TestRunRepeatsOnlyFailedHooks(t *testing.T) {
	r := newRecorder()
	fail := true
	c := newChains(t, r, hooks.Config{Hooks: map[string]any{
		"flaky": messageHook(func(context.Context, *hooks.Call) error {
			r.write("flaky")
			if fail {
				return errBroken
			}
			return nil
		}),
		"write": writeHook{r},
	}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "flaky"}, schemas.HookSpec{Builtin: "write"})
	wantFailed(t, c, tpl, data(schemas.PhaseMessage, "p1"), "flaky")
	r.wantLines(t, "flaky", "message p1")
	runs := r.wantEvents(t, "hook.started flaky", "hook.failed flaky", "hook.started write", "hook.finished write")
	if got := runs[1].Error; got == nil || got.Message != "broken" {
		t.Errorf("error in hook.failed = %v, want broken", got)
	}
	fail = false
	mustRun(t, c, tpl, data(schemas.PhaseMessage, "p1"))
	r.wantLines(t, "flaky")
	runs = r.wantEvents(t, "hook.started flaky", "hook.finished flaky")
	testkit.Equal(t, "attempt", runs[0].Attempt, 2)
}

func TestCriticalFailureEndsRunAndRepeatsAllHooks(t *testing.T) {
	r := newRecorder()
	c := newChains(t, r, hooks.Config{Hooks: map[string]any{
		"no":    messageHook(func(context.Context, *hooks.Call) error { return schemas.Errorf(schemas.CodePolicyDenied, "no") }),
		"write": writeHook{r},
	}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "write"}, schemas.HookSpec{Builtin: "no", Critical: yes()}, schemas.HookSpec{Builtin: "write"})
	for range 2 {
		failed, err := run(t, c, tpl, data(schemas.PhaseMessage, "p1"))
		testkit.WantCode(t, err, schemas.CodePolicyDenied)
		testkit.Equal(t, "failed hooks", failed, []string{"no"})
		if !strings.Contains(err.Error(), "hook no") {
			t.Errorf("error = %q, want it to name hook no", err)
		}
		r.wantLines(t, "message p1")
	}
}

func TestRunSurvivesBrokenHooks(t *testing.T) {
	r := newRecorder()
	release := make(chan struct{})
	c := newChains(t, r, hooks.Config{Hooks: map[string]any{
		"panics":  messageHook(func(context.Context, *hooks.Call) error { panic(strings.Repeat("much ", 1000)) }),
		"nil":     messageHook(func(_ context.Context, c *hooks.Call) error { return c.Exec(nil, nil, nil) }),
		"exits":   messageHook(func(context.Context, *hooks.Call) error { runtime.Goexit(); return nil }),
		"waits":   messageHook(func(ctx context.Context, _ *hooks.Call) error { <-ctx.Done(); return ctx.Err() }),
		"ignores": messageHook(func(context.Context, *hooks.Call) error { <-release; return nil }),
		"write":   writeHook{r},
	}})
	tpl := template(schemas.PhaseMessage,
		schemas.HookSpec{Builtin: "panics"}, schemas.HookSpec{Builtin: "nil"}, schemas.HookSpec{Builtin: "exits"},
		schemas.HookSpec{Builtin: "waits", TimeoutMS: 5}, schemas.HookSpec{Builtin: "ignores", TimeoutMS: 5}, schemas.HookSpec{Builtin: "write"})
	wantFailed(t, c, tpl, data(schemas.PhaseMessage, "p1"), "panics", "nil", "exits", "waits", "ignores")
	r.wantLines(t, "message p1")
	_, runs := r.take(t)
	for i, want := range []schemas.Code{schemas.CodeInternal, schemas.CodeInternal, schemas.CodeInternal, schemas.CodeDeadlineExceeded, schemas.CodeDeadlineExceeded} {
		got := runs[2*i+1]
		if got.Error == nil || got.Error.Code != want {
			t.Errorf("error of hook %s = %v, want code %s", got.Hook, got.Error, want)
		} else if n := len(got.Error.Message); n > 500 {
			t.Errorf("the error of hook %s is %d bytes, want at most 500", got.Hook, n)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.WantCode(t, c.Close(ended), schemas.CodeDeadlineExceeded)
	close(release)
	testkit.Must(t, c.Close(testkit.Context(t)))
}

func TestConcurrentRunsOfOneOccasionRunOnce(t *testing.T) {
	r := newRecorder()
	var ran atomic.Int64
	c := newChains(t, r, hooks.Config{Hooks: map[string]any{"count": messageHook(func(context.Context, *hooks.Call) error {
		ran.Add(1)
		runtime.Gosched()
		return nil
	})}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "count"})
	var wg sync.WaitGroup
	const occasions = 20
	for i := range 200 {
		wg.Go(func() {
			if _, err := run(t, c, tpl, data(schemas.PhaseMessage, fmt.Sprint("p", i%occasions))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	testkit.Equal(t, "number of hook runs", ran.Load(), int64(occasions))
}

func TestCommandHookRunsInSandbox(t *testing.T) {
	r := newRecorder()
	c := newChains(t, r, hooks.Config{})
	tpl := template(schemas.PhaseColdStart, schemas.HookSpec{Command: []string{"make", "setup"}})
	_, err := c.Run(t.Context(), tpl, data(schemas.PhaseColdStart, "s1.3"), "", func(_ context.Context, command []string, stdin []byte) error {
		r.write(strings.Join(command, " "))
		for _, want := range []string{`"occasion":"s1.3"`, `"specversion":"1"`} {
			if !strings.Contains(string(stdin), want) {
				t.Errorf("stdin = %s, want it to contain %s", stdin, want)
			}
		}
		return nil
	})
	testkit.Must(t, err)
	r.wantLines(t, "make setup")
	_, err = run(t, c, tpl, data(schemas.PhaseColdStart, "s1.4"))
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	r.wantEvents(t, "hook.started command:make", "hook.finished command:make", "hook.started command:make", "hook.failed command:make")
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	r := newRecorder()
	for name, hook := range map[string]any{"nothing": struct{}{}, "nil": nil, schemas.HookPull: writeHook{r}, "a b": writeHook{r}} {
		t.Run(name, func(t *testing.T) {
			_, err := hooks.New(hooks.Config{Worker: "w1", Record: r.record, Hooks: map[string]any{name: hook}})
			testkit.WantCode(t, err, schemas.CodeInvalidArgument)
		})
	}
	_, err := hooks.New(hooks.Config{Worker: "w1"})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
}

func TestRunRefusesInvalidSpecs(t *testing.T) {
	const invalid, unavailable = schemas.CodeInvalidArgument, schemas.CodeUnavailable
	type refused struct {
		code  schemas.Code
		phase schemas.Phase
		spec  schemas.HookSpec
	}
	tests := []refused{
		{invalid, schemas.PhaseTerminate, schemas.HookSpec{Builtin: "msg"}},
		{invalid, "later", schemas.HookSpec{Builtin: "msg"}},
		{unavailable, schemas.PhaseMessage, schemas.HookSpec{Builtin: schemas.HookSave}},
		{unavailable, schemas.PhaseMessage, schemas.HookSpec{URL: "https://example.com/", Secret: &schemas.SecretRef{File: "/x"}}},
	}
	for _, spec := range []schemas.HookSpec{
		{}, {Builtin: "unknown"}, {Builtin: "msg", URL: "https://a/"}, {Builtin: schemas.HookPush}, {Builtin: schemas.HookCleanUp}, {Command: []string{""}},
		{Builtin: "msg", TimeoutMS: -1}, {Builtin: "msg", TimeoutMS: 1 << 62},
		{Publish: "a.*"}, {Publish: "$KV.b.k"}, {Publish: "sluice.v1.local.default.evt.t.p.process.exited"}, {Publish: "a", Subject: "a"},
		{Subject: "a.*"}, {Subject: "$JS.API.x"}, {Subject: "_INBOX.x"}, {Subject: "sluice.v1.local.x"}, {Subject: "a..b"}, {Subject: "a b"}, {Subject: ".a"}, {Subject: strings.Repeat("a", 300)},
		{URL: "http://example.com/"}, {URL: "HTTP://example.com/"}, {URL: "ftp://example.com/"}, {URL: "https:///x"}, {URL: "https://u:p@example.com/"}, {URL: "https:x"}, {URL: "::"},
	} {
		tests = append(tests, refused{invalid, schemas.PhaseMessage, spec})
	}
	r := newRecorder()
	c := newChains(t, r, hooks.Config{Asker: asker(nil), Hooks: map[string]any{"msg": messageHook(nil)}})
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %.80v", tt.phase, tt.spec), func(t *testing.T) {
			_, err := run(t, c, template(tt.phase, tt.spec), data(tt.phase, "o"))
			testkit.WantCode(t, err, tt.code)
		})
	}
	if got, _ := r.take(t); len(got) > 0 {
		t.Errorf("events = %q, want none", got)
	}
}

func TestDefaults(t *testing.T) {
	no := false
	for _, tt := range []struct {
		name     string
		template schemas.Template
		want     map[schemas.Phase][]string
	}{
		{"sync and agent", schemas.Template{Sync: &schemas.TemplateSync{}, Agent: &schemas.TemplateAgent{}}, map[schemas.Phase][]string{
			schemas.PhaseColdStart: {"pull-workspace"}, schemas.PhaseMessage: {"save-message"},
			schemas.PhaseStreamFinish: {"save-message", "add-tokens", "push-workspace"}, schemas.PhaseTerminate: {"push-workspace", "clean-up"},
		}},
		{"no pull", schemas.Template{Sync: &schemas.TemplateSync{Init: &no}}, map[schemas.Phase][]string{
			schemas.PhaseStreamFinish: {"push-workspace"}, schemas.PhaseTerminate: {"push-workspace"},
		}},
		{"neither", schemas.Template{}, map[schemas.Phase][]string{}},
	} {
		got := map[schemas.Phase][]string{}
		for phase, specs := range hooks.Defaults(&tt.template) {
			for _, s := range specs {
				got[phase] = append(got[phase], s.Builtin)
			}
		}
		testkit.Equal(t, "default hooks with "+tt.name, got, tt.want)
	}
}

// asker replies to requests.
type asker func(subject string, body []byte) ([]byte, error)

func (f asker) Post(_ context.Context, m schemas.HookMessage) error {
	_, err := f(m.Subject, m.Body)
	return err
}

func (f asker) Ask(_ context.Context, m schemas.HookMessage) ([]byte, error) {
	return f(m.Subject, m.Body)
}

func TestSubjectHookReturnsReply(t *testing.T) {
	for i, tt := range []struct {
		reply string
		want  schemas.Code
	}{
		{"", ""}, {`{"stream":"S","seq":7}`, ""}, {`{"stream":"S","seq":7,"duplicate":true,"domain":"d"}`, ""}, {`{"stream":"S","seq":0}`, schemas.CodeInternal},
		{`{"stream":"","seq":0,"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, schemas.CodeUnavailable},
		{`{"code":"policy_denied","message":"no"}`, schemas.CodePolicyDenied}, {`{}`, schemas.CodeInternal}, {"ok", schemas.CodeInternal},
		{"null", schemas.CodeInternal}, {strings.Repeat("x", schemas.MaxControlBytes+1), schemas.CodeTooLarge},
		{`{"code":"x","message":"` + strings.Repeat("m", 60000) + `"}`, "x"},
	} {
		t.Run(fmt.Sprintf("%.40s", tt.reply), func(t *testing.T) {
			c := newChains(t, newRecorder(), hooks.Config{Asker: asker(func(subject string, body []byte) ([]byte, error) {
				testkit.Equal(t, "subject", subject, "my.hook")
				if !strings.Contains(string(body), `"thread":"t1"`) {
					t.Errorf("request = %s, want thread t1", body)
				}
				return []byte(tt.reply), nil
			})})
			tpl := template(schemas.PhaseTerminate, schemas.HookSpec{Subject: "my.hook", Critical: yes()})
			_, err := run(t, c, tpl, data(schemas.PhaseTerminate, fmt.Sprint("s1.", i)))
			testkit.WantCode(t, err, tt.want)
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the error is %d bytes, want at most 500", len(err.Error()))
			}
		})
	}
}

func TestRunStopsWaitingWhenContextEnds(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	c := newChains(t, newRecorder(), hooks.Config{Hooks: map[string]any{"slow": messageHook(func(context.Context, *hooks.Call) error {
		close(running)
		<-release
		return nil
	})}})
	tpl := template(schemas.PhaseMessage, schemas.HookSpec{Builtin: "slow"})
	first := make(chan error, 1)
	go func() {
		_, err := run(t, c, tpl, data(schemas.PhaseMessage, "p1"))
		first <- err
	}()
	<-running
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, tpl, data(schemas.PhaseMessage, "p1"), "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want context.Canceled", err)
	}
	close(release)
	testkit.Must(t, <-first)
}
