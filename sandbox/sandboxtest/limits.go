package sandboxtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// What every provider does about a workspace that holds too much.
var limitTests = []test{
	{"Past", func(t *testing.T, b *box) {
		l := b.limited(t)
		exit := l.sh(t, "touch 1 2 3 4 5 6; exit 7").ends(t, schemas.ReasonExited, 7)
		code(t, "what it left", exit.Limit, schemas.CodeLimitExceeded)
		// Whoever removes files gets through.
		if exit := l.sh(t, "ls >&2; rm 1 2").ends(t, schemas.ReasonExited, 0); exit.Limit != nil {
			t.Errorf("a command that removes files: %v", exit.Limit)
		}
		if exit := l.sh(t, "touch 1").ends(t, schemas.ReasonExited, 0); exit.Limit != nil {
			t.Errorf("a command within the limits: %v", exit.Limit)
		}
	}},
	{"Bytes", func(t *testing.T, b *box) {
		l := b.limited(t)
		exit := l.sh(t, "head -c 60000 /dev/zero >a; head -c 60000 /dev/zero >b").finish(t)
		code(t, "what it left", exit.Limit, schemas.CodeLimitExceeded)
	}},
	{"Running", func(t *testing.T, b *box) {
		l := b.limited(t)
		exit := l.sh(t, "touch 1 2 3 4 5 6; exec sleep 300").ends(t, schemas.ReasonKilled, 137)
		code(t, "why it was ended", exit.Limit, schemas.CodeLimitExceeded)
		exit = l.sh(t, "touch 7; exec sleep 300").ends(t, schemas.ReasonKilled, 137)
		code(t, "why the next was ended", exit.Limit, schemas.CodeLimitExceeded)
	}},
	{"Refused", func(t *testing.T, b *box) {
		l := b.limited(t)
		l.sh(t, "touch 1 2 3 4 5 6").finish(t)
		for _, name := range []string{"7", "8", "9"} {
			exit := l.sh(t, `touch "$1"`, name).ends(t, schemas.ReasonExited, 0)
			code(t, "what it left", exit.Limit, schemas.CodeLimitExceeded)
		}
		_, err := l.Start(l.ctx, shell("true"))
		code(t, "start", err, schemas.CodeInvalidArgument) // it has no id
		cmd := shell("rm 1")
		cmd.ID = l.id()
		_, err = l.Start(l.ctx, cmd)
		code(t, "start", err, schemas.CodeLimitExceeded)
		for _, name := range []string{"6", "7", "8", "9"} {
			if err := os.Remove(filepath.Join(l.workspace, name)); err != nil {
				t.Fatal(err)
			}
		}
		if exit := l.sh(t, "rm 1").ends(t, schemas.ReasonExited, 0); exit.Limit != nil {
			t.Error(exit.Limit)
		}
	}},
	{"Hostile", func(t *testing.T, b *box) {
		l := b.limited(t)
		outside := filepath.Join(t.TempDir(), "outside")
		for i := range 10 {
			if err := os.MkdirAll(filepath.Join(outside, string(rune('a'+i))), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		// A link counts as one, and what it leads to not at all.
		if exit := l.sh(t, `ln -s "$1" link && mkfifo pipe`, outside).ends(t, schemas.ReasonExited, 0); exit.Limit != nil {
			t.Error(exit.Limit)
		}
		exit := l.sh(t, "rm link pipe; i=0; while [ $i -lt 300 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done").finish(t)
		if !errors.Is(exit.Limit, schemas.ErrLimitExceeded) {
			t.Errorf("300 folders, one in the other: %+v", exit)
		}
	}},
}

// limited is a second sandbox of the same provider, of which the workspace may hold 5 files and 100,000 bytes.
func (b *box) limited(t *testing.T) *box {
	t.Helper()
	l := &box{provider: b.provider, workspace: filepath.Join(filepath.Dir(b.workspace), "limited"), ctx: b.ctx}
	l.spec = sandbox.Spec{ID: "limited", Workspace: l.workspace, Limits: sandbox.Limits{WorkspaceFiles: 5, WorkspaceBytes: 100_000}}
	s, err := b.provider.Create(b.ctx, l.spec)
	if err != nil {
		t.Fatal(err)
	}
	l.Sandbox = s
	t.Cleanup(func() { _ = s.Terminate(b.ctx, 0) }) // its provider is closed next, which would tell
	return l
}
