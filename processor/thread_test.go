package processor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestIdleSessionExpiresAndTheThreadGetsANewOne(t *testing.T) {
	c, w := newRig(t, soon, func(cfg *processor.Config) { cfg.IdleTimeout = time.Millisecond })
	first := c.exec(command("k1", sh("echo one >file")))
	ended := c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeSessionExpired })
	if first.Epoch == 0 || ended.Session == "" {
		t.Fatalf("epoch %d, ended session %q: want both", first.Epoch, ended.Session)
	}
	<-w.provider.sandboxes()[0].Done()
	// The workspace stays.
	second := c.exec(command("k2", sh("cat file")))
	wantFields(t, second, schemas.Result{Stdout: "one\n"})
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch of the next session = %d, want more than %d", second.Epoch, first.Epoch)
	}
	again := c.await(func(ev *schemas.Event) bool {
		return ev.Type == schemas.TypeSessionCreated && ev.Session != ended.Session
	})
	equal(t, "thread", again.Thread, "t")
	if got := w.log.of("session_expired"); len(got) == 0 || got[0]["session_id"] != ended.Session {
		t.Fatalf("session_expired lines are %v, want the first of session %s", got, ended.Session)
	}
}

func TestBusySessionDoesNotExpire(t *testing.T) {
	c, w := newRig(t, still, func(cfg *processor.Config) { cfg.IdleTimeout = time.Nanosecond })
	cmd := command("k", sh("echo on; exec sleep 300"))
	call := c.start(cmd, "on")
	w.expireIdle(c.ctx)
	c.must(w.control(processOf(cmd), schemas.Control{Kill: &schemas.KillRequest{}}))
	wantFields(t, c.end(call), schemas.Result{Reason: schemas.ReasonKilled})
	w.expireIdle(c.ctx)
	c.wantNoSession("t")
}

func TestCommandsThatRaceWithTheExpiryRunOnce(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) { cfg.IdleTimeout = time.Nanosecond; cfg.SweepEvery = time.Millisecond })
	for i := range 25 {
		cmd := command(fmt.Sprintf("k%d", i), sh("echo ran >>ran; wc -l <ran"))
		// A durable command that meets the expiry is delivered again; here at once.
		for c.ctx.Err() == nil {
			v, answers := w.deliver(cmd, true, 1)
			if v.Action == schemas.ActionRetry {
				continue
			}
			wantFields(t, c.terminal(answers), schemas.Result{Stdout: fmt.Sprintf("%d\n", i+1)})
			break
		}
	}
}

func TestProviderMustBeOfferedAndFitTheSession(t *testing.T) {
	c, w := newRig(t, func(cfg *processor.Config) {
		cfg.DefaultProvider = ""
		cfg.Providers["other"] = cfg.Providers["local"]
	})
	for _, k := range []struct {
		thread, provider string
		code             schemas.Code
	}{
		{"t", "", schemas.CodeUnavailable},
		{"t", "auto", schemas.CodeUnavailable},
		{"t", "docker", schemas.CodePermissionDenied},
		{"t", "local", ""},
		{"t", "", ""},
		{"t", "auto", ""},
		{"t", "other", schemas.CodeConflict},
		{"t", "docker", schemas.CodeConflict},
		{"t2", "other", ""},
	} {
		for _, durable := range []bool{false, true} {
			cmd := command(fmt.Sprint("k", k.thread, k.provider, durable, k.code), sh(":"))
			cmd.Thread, cmd.Provider = k.thread, k.provider
			v, answers := w.deliver(cmd, durable, 1)
			if declined := k.code == schemas.CodeUnavailable || k.code == schemas.CodePermissionDenied; declined && durable {
				// Promises 3: another worker may offer it.
				wantFields(t, v, schemas.Verdict{Action: schemas.ActionDecline, Reason: coded(k.code)})
				equal(t, "answers to a command that another worker may serve", len(answers), 0)
				continue
			} else if declined { // its caller queues it
				r := c.terminal(answers)
				if v.Action != schemas.ActionRetry || r.Error == nil || r.Error.Code != schemas.CodeUnavailable || r.Error.Details[schemas.DetailDeclined] == "" {
					t.Errorf("provider %q: action %v, error %v; want one that declines", k.provider, v.Action, r.Error)
				}
				continue
			}
			r := c.terminal(answers)
			if v.Action != schemas.ActionDone || (k.code == "") != r.Success || (k.code != "" && (r.Error == nil || r.Error.Code != k.code)) {
				t.Errorf("provider %q, durable %v: action %v, success %v, error %v; want code %q", k.provider, durable, v.Action, r.Success, r.Error, k.code)
			}
		}
	}
	p := w.HandlePlace(c.ctx, "default", schemas.PlaceRequest{Thread: "t3", Provider: "docker"})
	wantFields(t, p, schemas.PlaceReply{Error: coded(schemas.CodePermissionDenied)})
}

func TestConcurrentThreadsDoNotExceedMaxProcesses(t *testing.T) {
	c := newCell(t)
	const room = 2
	var mu sync.Mutex
	now, most := map[string]bool{}, 0 // by process: a record may be tried again
	w := c.worker("w1", func(cfg *processor.Config) {
		cfg.MaxProcesses = room
	}, failRecords(func(ev *schemas.Event) error {
		mu.Lock()
		defer mu.Unlock()
		switch ev.Type {
		case schemas.TypeProcessAccepted:
			now[ev.Process] = true
			most = max(most, len(now))
		case schemas.TypeProcessExited:
			delete(now, ev.Process)
		}
		return nil
	}))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			cmd := command("k", sh(":"))
			cmd.Thread = fmt.Sprintf("t%d", i)
			for c.ctx.Err() == nil {
				if v, answers := w.deliver(cmd, true, 1); v.Action == schemas.ActionDone {
					wantFields(t, c.terminal(answers), schemas.Result{Success: true})
					return
				}
			}
		})
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	if most > room {
		t.Fatalf("%d ran at the same time, want at most %d", most, room)
	}
}

func TestCommandsOfAThreadShareOneSandbox(t *testing.T) {
	c, w := newRig(t)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, answers := w.deliver(command(fmt.Sprint("k", i), sh(":")), i%2 == 0, 1)
			wantFields(t, c.terminal(answers), schemas.Result{Success: true})
		})
	}
	all.Wait()
	equal(t, "number of sandboxes", len(w.provider.sandboxes()), 1)
	c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeSandboxRunning })
}

func TestFailedSandboxIsReportedAndTriedAgain(t *testing.T) {
	c, w := newRig(t)
	create := w.provider.create
	w.provider.create = func(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
		return nil, schemas.Errorf(schemas.CodeUnavailable, "no cgroups here")
	}
	wantFields(t, c.exec(command("k1", sh(":"))), schemas.Result{Reason: schemas.ReasonRejected, Error: coded(schemas.CodeUnavailable)})
	var info schemas.SandboxInfo
	c.must(c.await(func(ev *schemas.Event) bool { return ev.Type == schemas.TypeSandboxFailed }).Decode(&info))
	wantFields(t, info, schemas.SandboxInfo{Provider: "local", Error: coded(schemas.CodeUnavailable)})
	w.provider.create = create
	wantFields(t, c.exec(command("k2", sh(":"))), schemas.Result{Success: true})
}

func TestConfigIsValidated(t *testing.T) {
	_, w := newRig(t)
	good := w.Config()
	for name, spoil := range map[string]func(*processor.Config){
		"worker":      func(c *processor.Config) { c.Worker = "no id" },
		"incarnation": func(c *processor.Config) { c.Incarnation = "" },
		"part":        func(c *processor.Config) { c.Records = nil },
		"workspaces":  func(c *processor.Config) { c.Workspaces = "relative" },
		"provider":    func(c *processor.Config) { c.DefaultProvider = "none" },
	} {
		cfg := good
		spoil(&cfg)
		equal(t, "code for the "+name, schemas.CodeOf(errorOf(processor.New(cfg))), schemas.CodeInvalidArgument)
	}
	testkit.Must(t, errorOf(processor.New(good)))
}
