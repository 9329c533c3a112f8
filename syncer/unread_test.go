package syncer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// ordinaryProgram is the first argument of a process that syncs as an ordinary user, from whom permissions keep files.
const ordinaryProgram = "sync-ordinary"

const ordinaryUser = 65534

// ordinaryResult is what that process prints.
type ordinaryResult struct {
	Report  *syncer.Report
	Partial bool
	Error   string
}

func ordinaryChild(args []string) int {
	op, root, folder, layout := args[0], args[1], args[2], args[3]
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgid(ordinaryUser), syscall.Setuid(ordinaryUser)); err != nil {
			return testkit.Fail(err)
		}
	}
	store, err := dirstore.Open(folder)
	if err != nil {
		return testkit.Fail(err)
	}
	s, err := syncer.New(syncer.Config{Root: root, Store: store, Remote: "test://store", Layout: state.Layout(layout)})
	if err != nil {
		return testkit.Fail(err)
	}
	run := s.Push
	if op == "pull" {
		run = s.Pull
	}
	report, err := run(context.Background())
	out := ordinaryResult{Report: report, Partial: errors.Is(err, syncer.ErrPartial)}
	if err != nil {
		out.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return testkit.Fail(err)
	}
	return 0
}

// asOrdinary runs an operation on the folder as an ordinary user, who owns all of it.
func asOrdinary(t *testing.T, o treetest.Option, op string, w *treetest.Tree, store string) (out ordinaryResult) {
	t.Helper()
	if os.Geteuid() == 0 {
		for _, dir := range []string{w.Dir, store} {
			for up := filepath.Dir(dir); up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
				testkit.Must(t, os.Chmod(up, 0o755))
			}
			testkit.Must(t, exec.Command("chown", "-R", fmt.Sprint(ordinaryUser), dir).Run())
		}
	}
	cmd := exec.Command(os.Args[0], ordinaryProgram, op, w.Dir, store, string(layoutOf(o)))
	cmd.Stderr = os.Stderr
	data, err := cmd.Output()
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(data, &out))
	return out
}

// TestUnreadableIsLeftAlone has a file and a folder that cannot be read: the rest is synced, both are reported by their paths, and what
// is not known is not deleted on the other side. Sync 11.
func TestUnreadableIsLeftAlone(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, dir := treetest.New(t), treetest.New(t), t.TempDir()
		for _, name := range []string{"secret", "closed/in/it", "readable"} {
			a.Write(name, "1")
		}
		if got := asOrdinary(t, o, "push", a, dir); got.Error != "" {
			t.Fatal(got.Error)
		}
		a.Chmod("secret", 0)
		a.Write("never", "read")
		a.Chmod("never", 0)
		a.Chmod("closed", 0)
		a.Write("readable", "22")
		a.Write("new", "2")
		check := func(what string, got ordinaryResult, want ...string) {
			t.Helper()
			var paths []string
			for _, s := range got.Report.Skipped {
				testkit.Equal(t, s.Path+" is unreadable", s.Unreadable, true)
				paths = append(paths, s.Path)
			}
			testkit.Equal(t, "paths that "+what+" skipped", paths, want)
			testkit.Equal(t, what+" is partial", got.Partial, true)
			testkit.Contains(t, "error of "+what, got.Error, `"closed"`)
		}
		pushed := asOrdinary(t, o, "push", a, dir)
		check("a push", pushed, "closed", "never", "secret")
		testkit.Equal(t, "files uploaded, paths deleted", []int{pushed.Report.Uploaded, pushed.Report.Deleted}, []int{2, 0})
		store := openDir(t, dir)
		b.Pull(store)
		for name, text := range map[string]string{"secret": "1", "closed/in/it": "1", "readable": "22", "new": "2"} {
			b.Want(name, text)
		}
		b.WantExists("never", false)

		b.Write("secret", "3")
		b.Write("closed/in/it", "3")
		b.Write("new", "33")
		b.Push(store)
		closeDir(t, store)
		check("a pull", asOrdinary(t, o, "pull", a, dir), "closed", "secret") // it need not read what only the folder has
		a.Want("new", "33")
		a.Chmod("secret", 0o644)
		a.Chmod("closed", 0o755)
		a.Want("secret", "1")
		a.Want("closed/in/it", "1")
		testkit.Must(t, os.Remove(a.Path("never")))
		if got := asOrdinary(t, o, "pull", a, dir); got.Error != "" {
			t.Fatal(got.Error)
		}
		a.Want("secret", "3")
		a.Want("closed/in/it", "3")
	})
}
