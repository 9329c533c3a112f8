package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// The sandbox itself, and the provider.
var sandboxTests = []test{
	{"Names", func(t *testing.T, b *box) {
		is(t, "id", b.ID(), "box")
		if b.provider.Name() == "" {
			t.Error("the provider has no name")
		}
		r := b.start(t, sandbox.Command{ID: "named", Path: "true"})
		is(t, "process id", r.ID(), "named")
		if r.PID() <= 0 {
			t.Errorf("pid %d", r.PID())
		}
		r.finish(t)
	}},
	{"Refused", func(t *testing.T, b *box) {
		for what, spec := range map[string]sandbox.Spec{
			"no id":         {Workspace: b.workspace},
			"bad id":        {ID: "a/b", Workspace: b.workspace},
			"no workspace":  {ID: "x"},
			"relative":      {ID: "x", Workspace: "here"},
			"bad env":       {ID: "x", Workspace: b.workspace, Env: map[string]string{"A=": ""}},
			"not a folder":  {ID: "x", Workspace: b.file(t, "file", nil, 0o644)},
			"below a file":  {ID: "x", Workspace: filepath.Join(b.workspace, "file", "below")},
			"zero byte env": {ID: "x", Workspace: b.workspace, Env: map[string]string{"A": "\x00"}},
		} {
			s, err := b.provider.Create(b.ctx, spec)
			code(t, what, err, schemas.CodeInvalidArgument)
			if err == nil {
				t.Error(s.Terminate(b.ctx, 0))
			}
		}
		_, err := b.provider.Create(b.ctx, b.spec)
		code(t, "an id in use", err, schemas.CodeConflict)
	}},
	{"WorkspaceIsMade", func(t *testing.T, b *box) {
		dir := filepath.Join(b.workspace, "new", "folder")
		s, err := b.provider.Create(b.ctx, sandbox.Spec{ID: "second", Workspace: dir})
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		if err := s.Terminate(b.ctx, 0); err != nil {
			t.Error(err)
		}
	}},
	{"CreateContext", func(t *testing.T, b *box) {
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		dir := filepath.Join(b.workspace, "never")
		if _, err := b.provider.Create(ctx, sandbox.Spec{ID: "second", Workspace: dir}); err == nil {
			t.Fatal("created with a context that is over")
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the workspace of a failed Create: %v", err)
		}
		s, err := b.provider.Create(b.ctx, sandbox.Spec{ID: "second", Workspace: dir})
		if err != nil {
			t.Fatalf("the id of a failed Create: %v", err)
		}
		if err := s.Terminate(b.ctx, 0); err != nil {
			t.Error(err)
		}
	}},
	{"Terminate", func(t *testing.T, b *box) {
		b.file(t, "kept", []byte("x"), 0o644)
		select {
		case <-b.Done():
			t.Fatal("done before it ended")
		default:
		}
		b.ended(t, 0)
		b.ended(t, time.Hour)
		if _, err := b.Start(b.ctx, sandbox.Command{ID: "late", Path: "true"}); schemas.CodeOf(err) != schemas.CodeUnavailable {
			t.Errorf("start after the end: %v", err)
		}
		if _, err := os.Stat(filepath.Join(b.workspace, "kept")); err != nil {
			t.Error(err)
		}
		s, err := b.provider.Create(b.ctx, b.spec)
		if err != nil {
			t.Fatalf("the same id again: %v", err)
		}
		if err := s.Terminate(b.ctx, 0); err != nil {
			t.Error(err)
		}
	}},
	{"TerminateInMidRun", func(t *testing.T, b *box) {
		r := b.sh(t, `trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
		s := b.sh(t, `(setsid sleep 300 >/dev/null 2>&1 &); echo ready; sleep 300`)
		r.until(t, "ready")
		s.until(t, "ready")
		b.ended(t, Patience)
		r.ends(t, schemas.ReasonExited, 5)
		s.ends(t, schemas.ReasonKilled, 143)
		is(t, "output", r.stdout.String(), "ready\nbye\n")
	}},
	{"TerminateIgnored", func(t *testing.T, b *box) {
		r := b.sh(t, `trap '' TERM; (setsid sleep 300 &); echo ready; while :; do sleep 300; done`)
		r.until(t, "ready")
		b.ended(t, 50*time.Millisecond)
		r.ends(t, schemas.ReasonKilled, 137)
	}},
	{"TerminateHastens", func(t *testing.T, b *box) {
		r := b.sh(t, `trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done`)
		r.until(t, "ready")
		ctx, cancel := context.WithCancel(b.ctx)
		first := make(chan error, 1)
		go func() { first <- b.Terminate(ctx, time.Hour) }()
		r.until(t, "asked")
		cancel()
		if err := <-first; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("terminate with a context that is over: %v", err)
		}
		if _, err := b.Start(b.ctx, sandbox.Command{ID: "late", Path: "true"}); schemas.CodeOf(err) != schemas.CodeUnavailable {
			t.Errorf("start while it ends: %v", err)
		}
		b.ended(t, 0)
		r.ends(t, schemas.ReasonKilled, 137)
	}},
	{"TerminateUnread", func(t *testing.T, b *box) {
		r := b.sh(t, "head -c 67108864 /dev/zero & head -c 67108864 /dev/zero >&2; wait")
		b.ended(t, 0)
		if exit := r.finish(t); exit.Reason != schemas.ReasonKilled {
			t.Errorf("%+v", exit)
		}
	}},
	{"TerminateWhileStarting", func(t *testing.T, b *box) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					p, err := b.Start(b.ctx, sandbox.Command{ID: b.id(), Path: "sleep", Args: []string{"300"}})
					if err != nil {
						code(t, "start while it ends", err, schemas.CodeUnavailable)
						return
					}
					all.Go(func() {
						exit, err := p.Wait(b.ctx)
						if err != nil || exit.Reason != schemas.ReasonKilled && exit.Reason != schemas.ReasonLost {
							t.Errorf("%+v, %v", exit, err)
						}
					})
					if b.last.Load() > 40 {
						b.ended(t, 0)
					}
				}
			})
		}
		all.Wait()
	}},
	{"TerminateAtATime", func(t *testing.T, b *box) {
		b.sh(t, "sleep 300")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { b.ended(t, 0) })
		}
		all.Wait()
	}},
	{"CloseEndsAll", func(t *testing.T, b *box) {
		r := b.sh(t, "echo ready; sleep 300")
		r.until(t, "ready")
		if err := b.provider.Close(); err != nil {
			t.Error(err)
		}
		<-b.Done()
		r.ends(t, schemas.ReasonKilled, 137)
		_, err := b.provider.Create(b.ctx, sandbox.Spec{ID: "late", Workspace: b.workspace})
		code(t, "create after Close", err, schemas.CodeUnavailable)
	}},
}

// ended terminates, and fails unless that succeeds and Done is closed.
func (b *box) ended(t *testing.T, grace time.Duration) {
	t.Helper()
	if err := b.Terminate(b.ctx, grace); err != nil {
		t.Errorf("terminate: %v", err)
	}
	select {
	case <-b.Done():
	default:
		t.Error("terminated, and not done")
	}
}
