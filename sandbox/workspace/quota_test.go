package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

// fill writes n files of one byte each into a folder.
func fill(tb testing.TB, dir, name string, n int) {
	tb.Helper()
	for i := range n {
		testkit.Must(tb, os.WriteFile(filepath.Join(dir, fmt.Sprint(name, i)), []byte("x"), 0o600))
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, name+"*"))
	testkit.Must(t, err)
	for _, f := range found {
		testkit.Must(t, os.RemoveAll(f))
	}
}

// wantLimit checks that err is limit_exceeded, or that there is none.
func wantLimit(t *testing.T, step string, err error, want bool) {
	t.Helper()
	if errors.Is(err, schemas.ErrLimitExceeded) != want || (err != nil) != want {
		t.Errorf("%s: error %v, want limit_exceeded: %v", step, err, want)
	}
}

// Ten minutes 6: workspaces are large by default, and measuring one costs a running process a tenth of a CPU at most.
func TestLargeWorkspaceIsCheckedLessOften(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: CheckInterval, 200 * time.Millisecond: CheckInterval, time.Second: 9 * time.Second} {
		testkit.Equal(t, "time after a check of "+took.String(), NextCheck(took), want)
	}
}

func TestQuota(t *testing.T) {
	dir := t.TempDir()
	q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 3})
	wantLimit(t, "start in an empty workspace", q.Admit(), false)
	fill(t, dir, "a", 3)
	wantLimit(t, "exit with a full workspace", q.CheckExit(), false)
	fill(t, dir, "b", 1)
	wantLimit(t, "check after the quota is crossed", q.Check(0), true)
	wantLimit(t, "second check", q.Check(0), true)
	fill(t, dir, "c", 1)
	wantLimit(t, "exit of the command that crossed it", q.CheckExit(), true)
	wantLimit(t, "start over the quota", q.Admit(), false)
	wantLimit(t, "check of a command that only reads", q.Check(0), false)
	wantLimit(t, "exit of a command that only reads", q.CheckExit(), false)
	remove(t, dir, "c")
	wantLimit(t, "exit of a command that removes a file", q.CheckExit(), false)
	fill(t, dir, "d", 1)
	wantLimit(t, "check of a command that adds it again", q.Check(0), true)
	for i := range maxStrikes {
		wantLimit(t, "start before the last strike", q.Admit(), false)
		fill(t, dir, fmt.Sprint("e", i), 1)
		wantLimit(t, "exit with a strike", q.CheckExit(), true)
	}
	wantLimit(t, "start after the last strike", q.Admit(), true)
	remove(t, dir, "")
	wantLimit(t, "start in an emptied workspace", q.Admit(), false)
	wantLimit(t, "exit in an emptied workspace", q.CheckExit(), false)
}

// A workspace that becomes smaller than ever since it crossed the quota resets the strikes. Removing only a part of what was added
// does not.
func TestQuotaResetsStrikesWhenWorkspaceShrinks(t *testing.T) {
	dir := t.TempDir()
	q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 3})
	fill(t, dir, "a", 100)
	wantLimit(t, "start after files came from outside", q.Admit(), false)
	for i := range 3 * maxStrikes {
		wantLimit(t, "start", q.Admit(), false)
		fill(t, dir, "b", 1)
		wantLimit(t, "exit after growth", q.CheckExit(), true)
		wantLimit(t, "start", q.Admit(), false)
		remove(t, dir, "b")
		remove(t, dir, fmt.Sprint("a", i, "0"))
		wantLimit(t, "exit after removal", q.CheckExit(), false)
	}
	for i := range maxStrikes {
		wantLimit(t, "start", q.Admit(), false)
		fill(t, dir, fmt.Sprint("c", i), 10)
		wantLimit(t, "exit after growth", q.CheckExit(), true)
		remove(t, dir, fmt.Sprintf("c%d0", i))
		wantLimit(t, "exit after a small removal", q.CheckExit(), false)
	}
	wantLimit(t, "start after the last strike", q.Admit(), true)
}

func TestQuotaLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		limits sandbox.Limits
		file   int
		over   bool
	}{
		"within":             {sandbox.Limits{WorkspaceBytes: 1 << 20, FileBytes: 100}, 100, false},
		"workspace bytes":    {sandbox.Limits{WorkspaceBytes: 1 << 20, FileBytes: 2 << 20}, 1<<20 + 1, true},
		"file bytes":         {sandbox.Limits{WorkspaceBytes: 1 << 20, FileBytes: 100}, 101, true},
		"default file bytes": {sandbox.Limits{WorkspaceBytes: 1 << 20}, 1000, false},
	} {
		dir := t.TempDir()
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, tt.file), 0o600))
		q := NewQuota(func() string { return dir }, tt.limits)
		wantLimit(t, name, q.CheckExit(), tt.over)
	}
}

// Processes 4: a workspace without limits, such as an operator's own folder, is not measured: it may hold folders that cannot be read.
func TestWorkspaceWithoutLimitsIsNotMeasured(t *testing.T) {
	q := NewQuota(func() string {
		t.Error("it is measured")
		return ""
	}, sandbox.Limits{WorkspaceBytes: sandbox.NoLimit, WorkspaceFiles: sandbox.NoLimit, FileBytes: sandbox.NoLimit})
	for step, err := range map[string]error{"admit": q.Admit(), "check": q.Check(0), "exit": q.CheckExit()} {
		wantLimit(t, step, err, false)
	}
	if bytes, files := q.Room(); bytes != sandbox.NoLimit || files != sandbox.NoLimit {
		t.Errorf("room is %d bytes and %d files", bytes, files)
	}
}
