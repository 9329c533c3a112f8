package processor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestFailedColdStartEndsTheSandboxAndReportsWhy(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: failIn(schemas.PhaseColdStart, "pull", schemas.Errorf(schemas.CodeUnavailable, "the store is away"))}
	w := c.worker("w1", func(cfg *processor.Config) { cfg.Hooks = h })
	r := c.exec(command("k1", sh(":")))
	wantFields(t, r, schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeUnavailable)})
	wantMessage(t, r.Error, "the store is away")
	<-w.provider.sandboxes()[0].Done()
	var info schemas.SandboxInfo
	c.must(c.awaitEvent(schemas.TypeSandboxFailed).Decode(&info))
	equal(t, "sandbox.failed has an error", info.Error != nil, true)
	if p, err := c.place(schemas.PlaceRequest{Start: true}); !errors.Is(err, schemas.ErrUnavailable) || p == nil || p.Created {
		t.Fatalf("place = %+v, error %v; want a session that exists and unavailable", p, err)
	}
	h.set(nil)
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
	if calls := h.of(schemas.PhaseColdStart); len(calls) != 3 || calls[0].data.Occasion != calls[2].data.Occasion {
		t.Fatalf("cold starts are %+v, want 3 of one occasion", calls)
	}
}

func TestHooksRunInTheSandboxOncePerOccasion(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: func(ctx context.Context, data schemas.HookData, _ string, exec hookExec) ([]string, error) {
		if err := exec(ctx, []string{"sh", "-c", "cat >>hooks"}, []byte(string(data.Phase)+"\n")); err != nil {
			return nil, err
		}
		if err := exec(ctx, []string{"sh", "-c", "echo no; exit 9"}, nil); err == nil {
			return nil, errors.New("exit code 9 is no failure")
		}
		return []string{"it"}, nil // not critical
	}}
	c.worker("w1", func(cfg *processor.Config) { cfg.Hooks = h })
	for i := range 3 {
		wantFields(t, c.exec(command(fmt.Sprint("k", i), sh("cat hooks"))), schemas.Result{Stdout: "cold_start\n"})
	}
	c.must(errorOf(c.stop(schemas.StopRequest{})))
	equal(t, "occasion of the end", h.once(t, schemas.PhaseTerminate).Occasion, h.once(t, schemas.PhaseColdStart).Occasion)
	equal(t, "phases", c.read("hooks"), "cold_start\nterminate\n")
}

func TestFailedSnapshotKeepsTheSession(t *testing.T) {
	c := newCell(t)
	h := &hooks{do: failIn(schemas.PhaseTerminate, "push", nil)}
	c.worker("w1", func(cfg *processor.Config) { cfg.Hooks = h }, with(&schemas.Template{Name: "kept", Sync: &schemas.TemplateSync{Location: "file:///x/{thread}"}}))
	c.must(errorOf(c.place(schemas.PlaceRequest{Thread: "plain"})))
	_, err := c.conn.StopSession(c.ctx, "default", "plain", schemas.StopRequest{Snapshot: true})
	testkit.WantCode(t, err, schemas.CodeInvalidArgument)
	cmd := command("k1", sh(":"))
	cmd.Template = "kept"
	c.exec(cmd)
	was := c.session()
	s, err := c.stop(schemas.StopRequest{Snapshot: true})
	if err == nil || s == nil || s.ID != was.ID {
		t.Fatalf("stop = %+v, error %v; want session %s and an error", s, err, was.ID)
	}
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
	c.must(errorOf(c.stop(schemas.StopRequest{}))) // without a snapshot
}

// The hooks of a session that a stop has kept have another occasion at its next end: what they did for the first is out of date.
func TestKeptSessionEndsOnAnotherOccasion(t *testing.T) {
	h := &hooks{do: failIn(schemas.PhaseTerminate, "notify", nil)}
	c, _ := newRig(t, hooked(h), with(syncing))
	c.exec(command("k1", sh(":")))
	for range 2 {
		_, err := c.stop(schemas.StopRequest{Snapshot: true})
		testkit.WantCode(t, err, schemas.CodeUnavailable)
	}
	h.set(nil)
	c.must(errorOf(c.stop(schemas.StopRequest{Snapshot: true})))
	seen := map[string]bool{}
	for _, end := range h.of(schemas.PhaseTerminate) {
		seen[end.data.Occasion] = true
	}
	testkit.Equal(t, "number of occasions of 3 ends", len(seen), 3)
}

// A stop with a snapshot that joins one without keeps the session too.
func TestFailedSnapshotOfAStopThatJoinsKeepsTheSession(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	fail := failIn(schemas.PhaseTerminate, "push", nil)
	var once sync.Once
	h := &hooks{do: func(ctx context.Context, data schemas.HookData, dir string, exec hookExec) ([]string, error) {
		if data.Phase == schemas.PhaseTerminate {
			once.Do(func() { close(begun) })
			<-release
		}
		return fail(ctx, data, dir, exec)
	}}
	c, w := newRig(t, hooked(h), with(syncing))
	c.exec(command("k1", sh(":")))
	was := c.session()
	replies := make(chan schemas.SessionReply, 2)
	stop := func(req schemas.StopRequest) {
		w.HandleSession(c.ctx, schemas.SessionControl{Tenant: schemas.DefaultTenant, Thread: "t", Stop: &req}, func(r schemas.SessionReply) { replies <- r })
	}
	stop(schemas.StopRequest{})
	<-begun
	stop(schemas.StopRequest{Snapshot: true})
	close(release)
	for range 2 {
		if r := <-replies; r.Error == nil || r.Session == nil || r.Session.ID != was.ID {
			t.Errorf("stop = %+v, error %v; want session %s and an error", r.Session, r.Error, was.ID)
		}
	}
	c.must(errorOf(c.stop(schemas.StopRequest{})))
}

func TestPolicyRejectsADeniedCommand(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) { cfg.Policy = denies("rm") })
	for _, durable := range []bool{false, true} {
		cmd := command(fmt.Sprint("k", durable), schemas.Exec{Command: "rm"})
		w.wantAnswer(cmd, durable, 1, schemas.ActionDead, failed(schemas.CodePolicyDenied))
	}
	c.awaitEvent(schemas.TypeValidationFailed)
	wantFields(t, c.exec(command("k", sh(":"))), schemas.Result{Success: true})
}

func TestSandboxStartHasItsOwnTimeout(t *testing.T) {
	t.Parallel()
	c, w := newRig(t, with(&schemas.Template{Name: "hasty", Session: schemas.TemplateSession{StartTimeoutMS: 100}}))
	_, slow := w.provider.hold()
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
