package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/schemas"
)

func mainly(script string) client.SandboxOption {
	return client.WithMain(client.Request{Command: "sh", Args: []string{"-c", script}})
}

func TestMainCommandEndsItsSandbox(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "t"}, mainly("while ! test -e go; do sleep 0.02; done; exit 3"))
	d.must(err)
	other, err := client.Attach(d.ctx, d.Client, "t")
	d.must(err)
	p, err := s.StartProcess(d.ctx, client.Request{Command: "sleep", Args: []string{"300"}})
	d.must(err)
	d.waitForEvent(p.ID(), schemas.TypeProcessStarted)
	d.must(s.Start(d.ctx)) // it runs
	if _, ok := s.ExitCode(); ok {
		t.Error("the main command has an exit code while it runs")
	}
	d.must(os.WriteFile(filepath.Join(d.cell.dir, "workspaces", schemas.DefaultTenant, "t", "go"), nil, 0o600))
	d.must(s.WaitUntilComplete(d.ctx, 0))
	code, _ := s.ExitCode()
	d.equal("status and exit code", []any{s.Status(), code}, []any{schemas.SandboxCompleted, 3})
	r, err := p.Wait(d.ctx)
	d.must(err)
	d.equal("reason of another process", r.Reason, schemas.ReasonKilled)
	for range 2 {
		d.must(s.Wait(d.ctx))
		d.must(s.WaitUntilComplete(d.ctx, 0))
		d.wantIs("exec afterwards", errorOf(s.Exec(d.ctx, echo(""))), client.ErrSandboxNotRunning, schemas.CodeSessionExpired)
		d.must(s.Stop(d.ctx))
	}
	status, err := other.GetStatus(d.ctx)
	d.must(err)
	code, _ = other.ExitCode()
	d.equal("status and exit code of the attached handle", []any{status, code}, []any{schemas.SandboxCompleted, 3})
	d.wantCode("the session", errorOf(d.Session(d.ctx, "t")), schemas.CodeNotFound)
	var states []schemas.EventType
	mains := 0
	d.must(d.Events(d.ctx, client.EventQuery{Thread: "t"}, func(ev *schemas.Event) error {
		switch ev.Type {
		case schemas.TypeSandboxCompleted, schemas.TypeSandboxTerminated, schemas.TypeSessionTerminated, schemas.TypeSessionExpired:
			states = append(states, ev.Type)
		case schemas.TypeProcessAccepted:
			var a schemas.Accepted
			if err := ev.Decode(&a); err != nil {
				return err
			}
			if a.Main {
				mains++
			}
		}
		return nil
	}))
	d.equal("ends", states, []schemas.EventType{schemas.TypeSandboxCompleted, schemas.TypeSessionTerminated})
	d.equal("main processes", mains, 1)
}

func TestMainCommandThatCannotRunEndsItsSandbox(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{}, client.WithMain(client.Request{Command: "no-such-program"}))
	d.must(err)
	d.must(s.WaitUntilComplete(d.ctx, 0))
	code, _ := s.ExitCode()
	d.equal("exit code", code, schemas.ExitNotFound)
}

func TestMainCommandWaitsForASandboxThatFails(t *testing.T) {
	t.Parallel()
	d := newCaller(t, "w1")
	mend := d.spoil("t")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{Thread: "t"}, mainly("exit 4"))
	d.must(err)
	if err := s.WaitUntilComplete(d.ctx, 0); !errors.Is(err, client.ErrSandboxFailed) {
		t.Fatalf("wait for a sandbox that fails: %v", err)
	}
	mend()
	d.must(s.Start(d.ctx))
	d.must(s.WaitUntilComplete(d.ctx, 0))
	code, _ := s.ExitCode()
	d.equal("exit code", code, 4)
}

func TestStopTerminatesASandboxWithAMainCommand(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{}, mainly("sleep 300"))
	d.must(err)
	d.must(s.Wait(d.ctx))
	waited := make(chan error, 1)
	other, err := client.Attach(d.ctx, d.Client, s.Thread())
	d.must(err)
	go func() { waited <- other.WaitUntilComplete(d.ctx, 0) }()
	d.must(s.Stop(d.ctx))
	if _, ok := s.ExitCode(); ok || s.Status() != schemas.SandboxTerminated {
		t.Errorf("a stopped sandbox has status %s, and an exit code: %v", s.Status(), ok)
	}
	if err := <-waited; !errors.Is(err, client.ErrSandboxTerminated) {
		t.Errorf("wait until complete: %v, want %v", err, client.ErrSandboxTerminated)
	}
}

// Without a main command a sandbox idles, and heeds SIGTERM: its stop takes no part of the grace.
func TestIdleSandboxEndsAtOnce(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{})
	d.must(err)
	d.must(s.Wait(d.ctx))
	d.must(s.Stop(d.ctx, client.StopGrace(time.Hour)))
	s, err = client.Run(d.ctx, d.Client, client.SessionRequest{}, mainly("trap 'exit 0' TERM; while :; do sleep 0.05; done"))
	d.must(err)
	d.must(s.Wait(d.ctx))
	d.must(s.Stop(d.ctx, client.StopGrace(time.Hour)))
}

func TestLostMainCommandIsAFailure(t *testing.T) {
	d := newCaller(t, "w1")
	s, err := client.Run(d.ctx, d.Client, client.SessionRequest{}, mainly("kill -9 $PPID; sleep 300")) // its supervisor
	d.must(err)
	d.wantIs("wait until complete", s.WaitUntilComplete(d.ctx, 0), client.ErrSandboxFailed, schemas.CodeLost)
	if _, ok := s.ExitCode(); ok {
		t.Error("a lost main command has an exit code")
	}
	d.equal("status", s.Status(), schemas.SandboxFailed)
}
