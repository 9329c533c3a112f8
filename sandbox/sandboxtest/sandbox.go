package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// The sandbox and the provider.
var sandboxTests = []test{
	{"Names", func(t *testing.T, f *fixture) {
		testkit.Equal(t, "id", f.ID(), "box")
		if f.provider.Name() == "" {
			t.Error("the provider has no name")
		}
		r := f.start(t, sandbox.Command{ID: "named", Path: "true"})
		testkit.Equal(t, "process id", r.ID(), "named")
		if r.PID() <= 0 {
			t.Errorf("pid = %d, want it positive", r.PID())
		}
		r.readAll(t)
	}},
	{"Refused", func(t *testing.T, f *fixture) {
		for what, spec := range map[string]sandbox.Spec{
			"no id":         {Workspace: f.workspace},
			"bad id":        {ID: "a/b", Workspace: f.workspace},
			"no workspace":  {ID: "x"},
			"relative":      {ID: "x", Workspace: "here"},
			"bad env":       {ID: "x", Workspace: f.workspace, Env: map[string]string{"A=": ""}},
			"not a folder":  {ID: "x", Workspace: f.writeFile(t, "file", nil, 0o644)},
			"below a file":  {ID: "x", Workspace: filepath.Join(f.workspace, "file", "below")},
			"zero byte env": {ID: "x", Workspace: f.workspace, Env: map[string]string{"A": "\x00"}},
		} {
			s, err := f.provider.Create(f.ctx, spec)
			WantCode(t, what, err, schemas.CodeInvalidArgument)
			if err == nil {
				testkit.Must(t, s.Terminate(f.ctx, 0))
			}
		}
		_, err := f.provider.Create(f.ctx, f.spec)
		WantCode(t, "create with an id in use", err, schemas.CodeConflict)
	}},
	{"CreatesWorkspace", func(t *testing.T, f *fixture) {
		dir := filepath.Join(f.workspace, "new", "folder")
		s := f.create(t, sandbox.Spec{ID: "second", Workspace: dir})
		info, err := os.Stat(dir)
		testkit.Must(t, err)
		testkit.Equal(t, "mode of the workspace", info.Mode().Perm(), os.FileMode(0o700))
		testkit.Must(t, s.Terminate(f.ctx, 0))
	}},
	{"ReadOnlyWorkspace", func(t *testing.T, f *fixture) {
		s, err := f.provider.Create(f.ctx, sandbox.Spec{ID: "second", Workspace: filepath.Join(f.workspace, "second"), ReadOnly: true})
		if f.provider.Name() == schemas.ProviderLocal {
			WantCode(t, "create", err, schemas.CodeInvalidArgument)
			return
		}
		testkit.Must(t, err)
		g := &fixture{Sandbox: s, ctx: f.ctx, workspace: filepath.Join(f.workspace, "second")}
		// The worker writes after the start, as a cold start does.
		testkit.Must(t, os.WriteFile(filepath.Join(g.workspace, "file"), []byte("text"), 0o644))
		g.sh(t, `[ "$(cat file)" = text ]`).wantExit(t, schemas.ReasonExited, 0)
		g.sh(t, "echo x >>file || rm file || touch new || chmod 777 . || mkdir folder || mv file new || exit 3").wantExit(t, schemas.ReasonExited, 3)
		g.sh(t, "echo x >/tmp/file").wantExit(t, schemas.ReasonExited, 0)
		for _, req := range []schemas.FileRequest{{Op: schemas.FileWrite, Path: "named"}, {Op: schemas.FileUpload}} {
			_, err := g.file(t, g, req, tarOf(t, "named"))
			WantCode(t, string(req.Op), err, schemas.CodePermissionDenied)
			testkit.Contains(t, "error of "+string(req.Op), fmt.Sprint(err), "named: read-only file system")
		}
		testkit.Must(t, s.Terminate(f.ctx, 0))
	}},
	{"CreateContextCanceled", func(t *testing.T, f *fixture) {
		dir := filepath.Join(f.workspace, "never")
		if _, err := f.provider.Create(f.canceled(), sandbox.Spec{ID: "second", Workspace: dir}); err == nil {
			t.Fatal("create with a canceled context: no error, want one")
		}
		_, err := os.Stat(dir)
		wantError(t, "stat of the workspace after a failed create", err, os.ErrNotExist)
		s, err := f.provider.Create(f.ctx, sandbox.Spec{ID: "second", Workspace: dir})
		if err != nil {
			t.Fatalf("create with the id of a failed create: %v", err)
		}
		testkit.Must(t, s.Terminate(f.ctx, 0))
	}},
	{"Terminate", func(t *testing.T, f *fixture) {
		f.writeFile(t, "kept", []byte("x"), 0o644)
		select {
		case <-f.Done():
			t.Fatal("Done is closed before the sandbox has ended")
		default:
		}
		f.terminate(t, 0)
		f.terminate(t, time.Hour)
		_, err := f.Start(f.ctx, sandbox.Command{ID: "late", Path: "true"})
		WantCode(t, "start after the end", err, schemas.CodeUnavailable)
		_, err = os.Stat(filepath.Join(f.workspace, "kept"))
		testkit.Must(t, err)
		s, err := f.provider.Create(f.ctx, f.spec)
		if err != nil {
			t.Fatalf("create with the id of an ended sandbox: %v", err)
		}
		testkit.Must(t, s.Terminate(f.ctx, 0))
	}},
	{"TerminateRunningProcesses", func(t *testing.T, f *fixture) {
		r := f.sh(t, `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
		s := f.sh(t, `(setsid sleep 300 >/dev/null 2>&1 &); echo ready; sleep 300`)
		r.readUntil(t, "ready")
		s.readUntil(t, "ready")
		f.terminate(t, testkit.Timeout)
		r.wantExit(t, schemas.ReasonExited, 5)
		s.wantExit(t, schemas.ReasonKilled, 143)
		testkit.Equal(t, "output", r.stdout.String(), "ready\nbye\n")
	}},
	{"TerminateIgnoredTERM", func(t *testing.T, f *fixture) {
		r := f.shReady(t, `trap '' TERM; (setsid sleep 300 &); echo ready; while :; do sleep 300; done`)
		f.terminate(t, 50*time.Millisecond)
		r.wantExit(t, schemas.ReasonKilled, 137)
	}},
	{"SecondTerminateEndsGrace", func(t *testing.T, f *fixture) {
		r := f.shReady(t, `trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done`)
		ctx, cancel := context.WithCancel(f.ctx)
		first := make(chan error, 1)
		go func() { first <- f.Terminate(ctx, time.Hour) }()
		r.readUntil(t, "asked")
		cancel()
		if err := <-first; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("terminate with a canceled context: error = %v, want context.Canceled or none", err)
		}
		_, err := f.Start(f.ctx, sandbox.Command{ID: "late", Path: "true"})
		WantCode(t, "start during terminate", err, schemas.CodeUnavailable)
		f.terminate(t, 0)
		r.wantExit(t, schemas.ReasonKilled, 137)
	}},
	{"TerminateWithUnreadOutput", func(t *testing.T, f *fixture) {
		r := f.sh(t, "head -c 67108864 /dev/zero & head -c 67108864 /dev/zero >&2; wait")
		f.terminate(t, 0)
		testkit.Equal(t, "exit reason", r.readAll(t).Reason, schemas.ReasonKilled)
	}},
	{"TerminateWhileStarting", func(t *testing.T, f *fixture) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					p, err := f.Start(f.ctx, sandbox.Command{ID: f.nextID(), Path: "sleep", Args: []string{"300"}})
					if err != nil {
						WantCode(t, "start during terminate", err, schemas.CodeUnavailable)
						return
					}
					all.Go(func() {
						exit, err := p.Wait(f.ctx)
						if err != nil || exit.Reason != schemas.ReasonKilled && exit.Reason != schemas.ReasonLost {
							t.Errorf("wait during terminate: exit = %+v, error = %v, want killed or lost", exit, err)
						}
					})
					if f.last.Load() > 40 {
						f.terminate(t, 0)
					}
				}
			})
		}
		all.Wait()
	}},
	{"TerminateConcurrently", func(t *testing.T, f *fixture) {
		f.sh(t, "sleep 300")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { f.terminate(t, 0) })
		}
		all.Wait()
	}},
	{"CloseEndsSandboxes", func(t *testing.T, f *fixture) {
		r := f.shReady(t, "echo ready; sleep 300")
		testkit.Must(t, f.provider.Close())
		<-f.Done()
		r.wantExit(t, schemas.ReasonKilled, 137)
		_, err := f.provider.Create(f.ctx, sandbox.Spec{ID: "late", Workspace: f.workspace})
		WantCode(t, "create after close", err, schemas.CodeUnavailable)
	}},
}

// terminate ends the sandbox and fails the test unless Done is closed then.
func (f *fixture) terminate(t *testing.T, grace time.Duration) {
	t.Helper()
	if err := f.Terminate(f.ctx, grace); err != nil {
		t.Errorf("terminate: %v", err)
	}
	select {
	case <-f.Done():
	default:
		t.Error("Done is open after terminate, want it closed")
	}
}
