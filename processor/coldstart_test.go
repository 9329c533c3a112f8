package processor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestAColdStartThatFailsGivesTheSandboxBackAndSaysWhy(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: func(context.Context, schemas.HookData, string, func(context.Context, []string, []byte) error) ([]string, error) {
		return []string{"pull"}, schemas.Errorf(schemas.CodeUnavailable, "the store is away")
	}}
	w := c.worker("w1", func(cfg *Config) { cfg.Hooks = h })
	r := c.exec(command("k1", sh(":")))
	if r.Reason != schemas.ReasonRejected || r.Error == nil || r.Error.Code != schemas.CodeUnavailable || !strings.Contains(r.Error.Message, "the store is away") {
		t.Fatalf("%+v %v", r, r.Error)
	}
	<-w.stage.sandboxes()[0].Done()
	var info schemas.SandboxInfo
	c.must(c.awaitTold(schemas.TypeSandboxFailed).Decode(&info))
	if info.Error == nil {
		t.Fatalf("%+v", info)
	}
	if p, err := c.place(schemas.PlaceRequest{Start: true}); !errors.Is(err, schemas.ErrUnavailable) || p == nil || p.Created {
		t.Fatalf("%+v %v", p, err)
	}
	h.mu.Lock()
	h.do = nil
	h.mu.Unlock()
	if r := c.exec(command("k2", sh(":"))); !r.Success {
		t.Fatalf("%+v", r)
	}
	if calls := h.of(schemas.PhaseColdStart); len(calls) != 3 || calls[0].data.Occasion != calls[2].data.Occasion {
		t.Fatalf("%+v", calls)
	}
}

func TestHooksRunInTheSandboxAndOncePerOccasion(t *testing.T) {
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
	c.worker("w1", func(cfg *Config) { cfg.Hooks = h })
	for i := range 3 {
		if r := c.exec(command(fmt.Sprint("k", i), sh("cat hooks"))); r.Stdout != "cold_start\n" {
			t.Fatalf("%+v %v", r, r.Error)
		}
	}
	_, err := c.stop(schemas.StopRequest{})
	c.must(err)
	if cold, end := h.of(schemas.PhaseColdStart), h.of(schemas.PhaseTerminate); len(cold) != 1 || len(end) != 1 || cold[0].data.Occasion != end[0].data.Occasion {
		t.Fatalf("%v %v", cold, end)
	}
	if b, err := os.ReadFile(filepath.Join(c.dir, "workspaces", "default", "t", "hooks")); err != nil || string(b) != "cold_start\nterminate\n" {
		t.Fatalf("%q %v", b, err)
	}
}

func TestASnapshotThatFailsKeepsTheSession(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: func(_ context.Context, data schemas.HookData, _ string, _ func(context.Context, []string, []byte) error) ([]string, error) {
		if data.Phase == schemas.PhaseTerminate {
			return []string{"push"}, nil
		}
		return nil, nil
	}}
	c.worker("w1", func(cfg *Config) { cfg.Hooks = h }, with(&schemas.Template{Name: "kept", Sync: &schemas.TemplateSync{Location: "file:///x/{thread}"}}))
	if _, err := c.place(schemas.PlaceRequest{Thread: "plain"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.StopSession(c.ctx, "default", "plain", schemas.StopRequest{Snapshot: true}); !errors.Is(err, schemas.ErrInvalidArgument) {
		t.Fatalf("a snapshot to nowhere: %v", err)
	}
	cmd := command("k1", sh(":"))
	cmd.Template = "kept"
	c.exec(cmd)
	was := c.session()
	s, err := c.stop(schemas.StopRequest{Snapshot: true})
	if err == nil || s == nil || s.ID != was.ID {
		t.Fatalf("%+v %v", s, err)
	}
	if r := c.exec(command("k2", sh(":"))); !r.Success {
		t.Fatalf("%+v", r)
	}
	if _, err := c.stop(schemas.StopRequest{}); err != nil {
		t.Fatalf("without a snapshot: %v", err)
	}
}

func TestADeniedCommandIsRejectedAndTold(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", func(cfg *Config) { cfg.Policy = denies("rm") })
	for _, durable := range []bool{false, true} {
		v, answers := w.deliver(command(fmt.Sprint("k", durable), schemas.Exec{Command: "rm"}), durable, 1)
		if r := c.terminal(answers); v.Action != schemas.ActionDead || r.Error == nil || r.Error.Code != schemas.CodePolicyDenied {
			t.Fatalf("%+v %+v", v, r)
		}
	}
	c.awaitTold(schemas.TypeValidationFailed)
	if r := c.exec(command("k", sh(":"))); !r.Success {
		t.Fatalf("%+v", r)
	}
}

func TestTheStartHasAClockOfItsOwn(t *testing.T) {
	c := newCell(t)
	w := c.worker("w1", with(&schemas.Template{Name: "hasty", Session: schemas.TemplateSession{StartTimeoutMS: 100}}))
	create := w.stage.create
	slow := make(chan struct{})
	w.stage.create = func(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
		<-slow
		return create(ctx, spec)
	}
	// Making the sandbox takes longer than the command may run.
	e := sh(":")
	e.TimeoutMS = 2000
	call := c.send(command("k1", e))
	time.AfterFunc(2500*time.Millisecond, func() { close(slow) })
	if r := c.end(call); !r.Success {
		t.Fatalf("%+v %v", r, r.Error)
	}
	// One that takes longer than the template allows is given up, whatever the provider does.
	w.stage.create = func(ctx context.Context, _ sandbox.Spec) (sandbox.Sandbox, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	late := command("k2", sh(":"))
	late.Thread, late.Template = "late", "hasty"
	if r := c.exec(late); r.Reason != schemas.ReasonRejected || r.Error.Code != schemas.CodeDeadlineExceeded {
		t.Fatalf("%+v %v", r, r.Error)
	}
}
