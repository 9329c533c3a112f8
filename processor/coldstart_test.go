package processor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestFailedColdStartEndsTheSandboxAndReportsWhy(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: func(context.Context, schemas.HookData, string, func(context.Context, []string, []byte) error) ([]string, error) {
		return []string{"pull"}, schemas.Errorf(schemas.CodeUnavailable, "the store is away")
	}}
	w := c.worker("w1", func(cfg *processor.Config) { cfg.Hooks = h })
	r := c.exec(command("k1", sh(":")))
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeUnavailable)})
	wantMessage(t, r.Error, "the store is away")
	<-w.provider.sandboxes()[0].Done()
	var info schemas.SandboxInfo
	c.must(c.awaitEvent(schemas.TypeSandboxFailed).Decode(&info))
	if info.Error == nil {
		t.Fatal("sandbox.failed has no error")
	}
	if p, err := c.place(schemas.PlaceRequest{Start: true}); !errors.Is(err, schemas.ErrUnavailable) || p == nil || p.Created {
		t.Fatalf("place = %+v, error %v; want a session that exists and unavailable", p, err)
	}
	h.mu.Lock()
	h.do = nil
	h.mu.Unlock()
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
	if calls := h.of(schemas.PhaseColdStart); len(calls) != 3 || calls[0].data.Occasion != calls[2].data.Occasion {
		t.Fatalf("cold starts are %+v, want 3 of one occasion", calls)
	}
}

func TestHooksRunInTheSandboxOncePerOccasion(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: func(ctx context.Context, data schemas.HookData, _ string, exec func(context.Context, []string, []byte) error) ([]string, error) {
		if err := exec(ctx, []string{"sh", "-c", "cat >>hooks"}, []byte(string(data.Phase)+"\n")); err != nil {
			return nil, err
		}
		return nil, exec(ctx, []string{"sh", "-c", "echo no; exit 9"}, nil)
	}}
	h2 := h.do
	h.do = func(ctx context.Context, data schemas.HookData, dir string, exec func(context.Context, []string, []byte) error) ([]string, error) {
		_, err := h2(ctx, data, dir, exec)
		if err == nil {
			return nil, errors.New("exit code 9 is no failure")
		}
		return []string{"it"}, nil // not critical
	}
	c.worker("w1", func(cfg *processor.Config) { cfg.Hooks = h })
	for i := range 3 {
		wantFields(t, c.exec(command(fmt.Sprint("k", i), sh("cat hooks"))), schemas.Result{Stdout: "cold_start\n"})
	}
	_, err := c.stop(schemas.StopRequest{})
	c.must(err)
	if cold, end := h.of(schemas.PhaseColdStart), h.of(schemas.PhaseTerminate); len(cold) != 1 || len(end) != 1 || cold[0].data.Occasion != end[0].data.Occasion {
		t.Fatalf("cold starts are %v, ends %v; want one each, of one occasion", cold, end)
	}
	if b, err := os.ReadFile(filepath.Join(c.dir, "workspaces", "default", "t", "hooks")); err != nil || string(b) != "cold_start\nterminate\n" {
		t.Fatalf("hooks = %q, error %v; want both phases", b, err)
	}
}

func TestFailedSnapshotKeepsTheSession(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseTerminate {
			return []string{"push"}, nil
		}
		return nil, nil
	}}
	c.worker("w1", func(cfg *processor.Config) { cfg.Hooks = h }, with(&schemas.Template{Name: "kept", Sync: &schemas.TemplateSync{Location: "file:///x/{thread}"}}))
	if _, err := c.place(schemas.PlaceRequest{Thread: "plain"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.StopSession(c.ctx, "default", "plain", schemas.StopRequest{Snapshot: true}); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatalf("snapshot without a sync location: error %v, want invalid_argument", err)
	}
	cmd := command("k1", sh(":"))
	cmd.Template = "kept"
	c.exec(cmd)
	was := c.session()
	s, err := c.stop(schemas.StopRequest{Snapshot: true})
	if err == nil || s == nil || s.ID != was.ID {
		t.Fatalf("stop = %+v, error %v; want session %s and an error", s, err, was.ID)
	}
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
	if _, err := c.stop(schemas.StopRequest{}); err != nil {
		t.Fatalf("stop without a snapshot: error %v, want none", err)
	}
}

func TestPolicyRejectsADeniedCommand(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *processor.Config) { cfg.Policy = denies("rm") })
	for _, durable := range []bool{false, true} {
		v, answers := w.deliver(command(fmt.Sprint("k", durable), schemas.Exec{Command: "rm"}), durable, 1)
		equal(t, "action", v.Action, schemas.ActionDead)
		wantFields(t, c.terminal(answers), schemas.Result{Error: coded(schemas.CodePolicyDenied)})
	}
	c.awaitEvent(schemas.TypeValidationFailed)
	wantFields(t, c.exec(command("k", sh(":"))), schemas.Result{Success: true})
}

func TestSandboxStartHasItsOwnTimeout(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", with(&schemas.Template{Name: "hasty", Session: schemas.TemplateSession{StartTimeoutMS: 100}}))
	create := w.provider.create
	slow := make(chan struct{})
	w.provider.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		<-slow
		return create(ctx, spec)
	}
	// The sandbox takes longer to create than the command may run.
	e := sh(":")
	e.TimeoutMS = 2000
	call := c.send(command("k1", e))
	time.AfterFunc(2500*time.Millisecond, func() { close(slow) })
	wantFields(t, c.end(call), schemas.Result{Success: true})
	// The template's start timeout ends an attempt, even when the provider ignores its context.
	w.provider.create = func(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	late := command("k2", sh(":"))
	late.Thread, late.Template = "late", "hasty"
	wantFields(t, c.exec(late), schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeDeadlineExceeded)})
}
