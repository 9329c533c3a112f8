package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/removal"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

const ordinaryUser = 12345

// ordinaryWorkspace makes a workspace, and the calling goroutine that of an ordinary user, who owns it.
func ordinaryWorkspace(t *testing.T) string {
	t.Helper()
	top := testkit.ShortDir(t)
	dir := filepath.Join(top, "w")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { testkit.Must(t, removal.Path(dir)) })
	if os.Geteuid() == 0 {
		testkit.Must(t, os.Chmod(top, 0o755)) //nolint:gosec // an ordinary user goes through it
		testkit.Must(t, os.Chown(dir, ordinaryUser, ordinaryUser))
		runtime.LockOSThread()
		testkit.Must(t, unix.Setfsuid(ordinaryUser)) // the kernel takes the capabilities that override modes with it
		t.Cleanup(runtime.UnlockOSThread)
		t.Cleanup(func() { testkit.Must(t, unix.Setfsuid(0)) })
	}
	return dir
}

// hide makes a folder with a mode that denies its owner.
func hide(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	testkit.Must(t, os.Chmod(dir, mode))
}

// A walk goes on past folders that it may not read, or may not search: everything else counts.
func TestMeasureGoesPastFoldersThatDenyIt(t *testing.T) {
	for _, mode := range []os.FileMode{0, 0o100, 0o400} {
		t.Run(mode.String(), func(t *testing.T) {
			dir := ordinaryWorkspace(t)
			for _, name := range []string{"a", "m", "z"} {
				hidden := filepath.Join(dir, name, "hidden")
				testkit.Must(t, os.MkdirAll(hidden, 0o700))
				fill(t, hidden, "f", 1)
				hide(t, hidden, mode)
				fill(t, filepath.Join(dir, name), "g", 10)
			}
			u, err := Measure(dir)
			testkit.WantCode(t, err, schemas.CodeUnavailable)
			want := int64(3 * (2 + 10))
			if mode == 0o400 {
				want += 3 // the names of the files can be read
			}
			testkit.Equal(t, fmt.Sprintf("files beside folders with mode %o", mode), u.Files, want)
			testkit.Equal(t, "the system's error", errors.Is(err, unix.EACCES), true)
			text := fmt.Sprint(err)
			testkit.Contains(t, "error", text, `/hidden" denies the worker access: run chmod u+rwx on it`)
			if strings.Contains(text, dir) {
				t.Errorf("the error %q has a path of the host", text)
			}
		})
	}
}

// A folder below the depth to which descriptors are kept, which cannot be left by its "..", is reported, and the rest counts.
func TestMeasureDeepFolderThatDeniesIt(t *testing.T) {
	dir := ordinaryWorkspace(t)
	last := deepen(t, dir, maxOpen+10)
	for _, name := range []string{"a", "b", "c"} {
		testkit.Must(t, last.MkdirAll(name+"/sub/sub", 0o700))
	}
	testkit.Must(t, last.Chmod("b", 0o400))
	u, err := Measure(dir)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	testkit.Equal(t, "the system's error", errors.Is(err, unix.EACCES), true)
	testkit.Equal(t, "files", u.Files, int64(maxOpen+10+3*3-1)) // all but b/sub/sub
}

// A folder that denies the worker for a moment ends nothing; one that stays does, with the way out, and growth beside it is still refused.
func TestQuotaWithAFolderThatDeniesTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := ordinaryWorkspace(t)
		q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 10})
		private := filepath.Join(dir, "private")
		for range 3 {
			hide(t, private, 0)
			wantLimit(t, "check of a folder that has just been closed", q.Check(0), false)
			time.Sleep(CheckInterval)                 //nolint:forbidigo // fake time
			testkit.Must(t, os.Chmod(private, 0o700)) //nolint:gosec // a folder
			wantLimit(t, "check once it is open again", q.Check(0), false)
			wantLimit(t, "exit", q.CheckExit(), false)
		}
		hide(t, private, 0)
		wantLimit(t, "check of a folder that has just been closed", q.Check(0), false)
		fill(t, dir, "f", 20)
		wantLimit(t, "check after growth beside it", q.Check(0), true)
		wantLimit(t, "exit after growth beside it", q.CheckExit(), true)
		remove(t, dir, "f")
		for range 2 * maxStrikes {
			time.Sleep(CheckInterval)                 //nolint:forbidigo // fake time
			testkit.Must(t, os.Chmod(private, 0o700)) //nolint:gosec // a folder
			wantLimit(t, "start of a command that opens it", q.Admit(), false)
			wantLimit(t, "check of a command that has opened it", q.Check(0), false)
			wantLimit(t, "exit of a command that has opened it", q.CheckExit(), false)
			hide(t, private, 0)
			wantLimit(t, "exit of a command that closes it", q.CheckExit(), false)
			time.Sleep(CheckInterval) //nolint:forbidigo // fake time
			wantLimit(t, "start of a command that leaves it", q.Admit(), false)
			err := q.Check(0)
			wantLimit(t, "check of a command that leaves it", err, true)
			testkit.Contains(t, "error", fmt.Sprint(err), `the mode of the folder "private" denies the worker access: run chmod u+rwx on it`)
			if text := fmt.Sprint(err); strings.Contains(text, "workspace-bytes") || strings.Contains(text, dir) {
				t.Errorf("the error %q has advice about limits, or a path of the host", text)
			}
			for range 2 * maxStrikes { // all that are killed at once
				wantLimit(t, "exit of a command that leaves it", q.CheckExit(), true)
			}
			wantLimit(t, "start of a command that can open it", q.Admit(), false)
		}
	})
}

// Commands that are too short for a check, and grow what they hide, are refused after a few.
func TestQuotaOfShortCommandsThatHideWhatTheyWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := ordinaryWorkspace(t)
		q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 10})
		private := filepath.Join(dir, "private")
		started := 0
		for ; started < 20 && q.Admit() == nil; started++ {
			hide(t, private, 0o700)
			fill(t, private, fmt.Sprint("f", started), 3)
			hide(t, private, 0)
			time.Sleep(CheckInterval / 2) //nolint:forbidigo // fake time
			_ = q.CheckExit()
		}
		if started == 20 {
			t.Error("no command was refused")
		}
		err := q.Admit()
		wantLimit(t, "start", err, true)
		testkit.Contains(t, "error", fmt.Sprint(err), `the folder "private"`)
		testkit.Must(t, os.Chmod(private, 0o700)) //nolint:gosec // a folder
		time.Sleep(CheckInterval)                 //nolint:forbidigo // fake time
		wantLimit(t, "start once the worker's operator has opened it", q.Admit(), false)
		fill(t, private, "g", 1)
		wantLimit(t, "exit of a command that adds to all that was hidden", q.CheckExit(), true)
	})
}

// What was counted stays counted while it is hidden: to hide it does not end the state of a workspace that is over its quota.
func TestHiddenFilesStayCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := ordinaryWorkspace(t)
		q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 10})
		private := filepath.Join(dir, "private")
		testkit.Must(t, os.Mkdir(private, 0o700))
		fill(t, private, "f", 20)
		wantLimit(t, "exit over the quota", q.CheckExit(), true)
		hide(t, private, 0)
		wantLimit(t, "exit of a command that hides it", q.CheckExit(), false)
		_, files := q.Room()
		testkit.Equal(t, "room for files", files, int64(0))
		fill(t, dir, "g", 30)
		wantLimit(t, "check of a command that grows", q.Check(0), true)
	})
}

// A workspace with deep folders that then grows is refused, by any worker.
func TestQuotaWithDeepFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "w")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	t.Cleanup(func() { testkit.Must(t, removal.Path(dir)) })
	q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceFiles: 1000})
	deepen(t, dir, maxOpen+50)
	wantLimit(t, "check with deep folders", q.Check(0), false)
	wantLimit(t, "exit with deep folders", q.CheckExit(), false)
	fill(t, dir, "f", 1000)
	wantLimit(t, "check after growth", q.Check(0), true)
	wantLimit(t, "exit after growth", q.CheckExit(), true)
	for i := range maxStrikes {
		fill(t, dir, fmt.Sprint("g", i), 1)
		wantLimit(t, "exit with a strike", q.CheckExit(), true)
	}
	wantLimit(t, "start after the last strike", q.Admit(), true)
}
