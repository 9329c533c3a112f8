package sandboxtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// How a workspace's limits are enforced.
var limitTests = []test{
	{"Files", func(t *testing.T, f *fixture) {
		l := f.limitedSandbox(t)
		// The shell itself makes the files: one that waited for another program could be killed by a check meanwhile.
		exit := l.sh(t, ": >1; : >2; : >3; : >4; : >5; : >6; exit 7").wantExit(t, schemas.ReasonExited, 7)
		WantCode(t, "limit of the exit", exit.Limit, schemas.CodeLimitExceeded)
		// A command that removes files is not refused.
		wantNoLimit(t, "a command that removes files", l.sh(t, "ls >&2; rm 1 2").wantExit(t, schemas.ReasonExited, 0))
		wantNoLimit(t, "a command within the limits", l.sh(t, "touch 1").wantExit(t, schemas.ReasonExited, 0))
	}},
	{"Bytes", func(t *testing.T, f *fixture) {
		l := f.limitedSandbox(t)
		exit := l.sh(t, "head -c 60000 /dev/zero >a; head -c 60000 /dev/zero >b").readAll(t)
		WantCode(t, "limit of the exit", exit.Limit, schemas.CodeLimitExceeded)
	}},
	{"KillsRunningCommand", func(t *testing.T, f *fixture) {
		l := f.limitedSandbox(t)
		exit := l.sh(t, "touch 1 2 3 4 5 6; exec sleep 300").wantExit(t, schemas.ReasonKilled, 137)
		WantCode(t, "limit of the killed command", exit.Limit, schemas.CodeLimitExceeded)
		exit = l.sh(t, "touch 7; exec sleep 300").wantExit(t, schemas.ReasonKilled, 137)
		WantCode(t, "limit of the next killed command", exit.Limit, schemas.CodeLimitExceeded)
	}},
	{"RefusesStart", func(t *testing.T, f *fixture) {
		l := f.limitedSandbox(t)
		l.sh(t, "touch 1 2 3 4 5 6").readAll(t)
		for _, name := range []string{"7", "8", "9"} {
			exit := l.sh(t, `: >"$1"`, name).wantExit(t, schemas.ReasonExited, 0)
			WantCode(t, "limit of the exit", exit.Limit, schemas.CodeLimitExceeded)
		}
		_, err := l.Start(l.ctx, shell("true"))
		WantCode(t, "start without an id", err, schemas.CodeInvalidArgument)
		cmd := shell("rm 1")
		cmd.ID = l.nextID()
		_, err = l.Start(l.ctx, cmd)
		WantCode(t, "start above the limit", err, schemas.CodeLimitExceeded)
		for _, name := range []string{"6", "7", "8", "9"} {
			testkit.Must(t, os.Remove(filepath.Join(l.workspace, name)))
		}
		wantNoLimit(t, "a command within the limits", l.sh(t, "rm 1").wantExit(t, schemas.ReasonExited, 0))
	}},
	{"LowDisk", func(t *testing.T, f *fixture) {
		l := f.sandboxWith(t, sandbox.Limits{MinFreeBytes: 1 << 62}) // more than any disk has
		exit := l.sh(t, "head -c 3000000 /dev/zero >a; exec sleep 300").wantExit(t, schemas.ReasonKilled, 137)
		WantCode(t, "limit of what makes the workspace larger", exit.Limit, schemas.CodeLimitExceeded)
		wantNoLimit(t, "a command that writes little", l.sh(t, "echo x >b; rm a").wantExit(t, schemas.ReasonExited, 0))
	}},
	{"LinksAndDeepFolders", func(t *testing.T, f *fixture) {
		l := f.limitedSandbox(t)
		outside := filepath.Join(t.TempDir(), "outside")
		for i := range 10 {
			testkit.Must(t, os.MkdirAll(filepath.Join(outside, string(rune('a'+i))), 0o755))
		}
		// A link counts as one file, and its target does not count.
		wantNoLimit(t, "a link out of the workspace", l.sh(t, `ln -s "$1" link && mkfifo pipe`, outside).wantExit(t, schemas.ReasonExited, 0))
		exit := l.sh(t, "rm link pipe; i=0; while [ $i -lt 300 ]; do mkdir d && cd d || exit 1; i=$((i+1)); done").readAll(t)
		WantCode(t, "limit after 300 nested folders", exit.Limit, schemas.CodeLimitExceeded)
	}},
}

// limitedSandbox is sandboxWith 5 files and 100,000 bytes at most.
func (f *fixture) limitedSandbox(t *testing.T) *fixture {
	t.Helper()
	return f.sandboxWith(t, sandbox.Limits{WorkspaceFiles: 5, WorkspaceBytes: 100_000})
}

// sandboxWith makes a second sandbox of the same provider, with these limits.
func (f *fixture) sandboxWith(t *testing.T, limits sandbox.Limits) *fixture {
	t.Helper()
	l := &fixture{provider: f.provider, workspace: filepath.Join(filepath.Dir(f.workspace), "limited"), ctx: f.ctx}
	l.spec = sandbox.Spec{ID: "limited", Workspace: l.workspace, Limits: limits}
	l.Sandbox = f.create(t, l.spec)
	t.Cleanup(func() { _ = l.Terminate(f.ctx, 0) }) // the close of the provider, which follows, reports what fails
	return l
}
