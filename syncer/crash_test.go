package syncer_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// childProgram is the first argument of a process that a test starts and kills. Its further arguments are the operation, the
// folder, the folder of the store, the form, see [treetest.Form], and the phase in which the process kills itself after the first file, "" for none, or,
// after a colon, after a number of bytes.
const childProgram = "sync"

func child(args []string) int {
	op, root, folder, form := args[0], args[1], args[2], args[3]
	last, after, _ := strings.Cut(args[4], ":")
	bytes, _ := strconv.ParseInt(after, 10, 64) // 0 for none
	store, err := dirstore.Open(folder)
	if err != nil {
		return testkit.Fail(err)
	}
	cfg := syncer.Config{Root: root, Store: store, Remote: "test://store",
		Progress: func(p syncer.Progress) {
			if p.Phase == last && p.Bytes >= bytes {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}}
	treetest.Form(form)(&cfg)
	s, err := syncer.New(cfg)
	if err == nil && op == "push" {
		_, err = s.Push(context.Background())
	} else if at, ok := strings.CutPrefix(op, "pull@"); err == nil && ok {
		_, err = s.PullAt(context.Background(), at)
	} else if err == nil {
		_, err = s.Pull(context.Background())
	}
	if err != nil {
		return testkit.Fail(err)
	}
	return 0
}

// command is a process that runs child.
func command(t *testing.T, o treetest.Option, op, root, store, last string) *exec.Cmd {
	t.Helper()
	return exec.Command(os.Args[0], childProgram, op, root, store, string(layoutOf(o)), last)
}

// kills is the test of killed operations on a folder as the store.
func kills(t *testing.T, form string) *treetest.Kills {
	t.Helper()
	dir := t.TempDir()
	s := openDir(t, dir)
	t.Cleanup(func() { closeDir(t, s) })
	o := treetest.Form(form)
	return &treetest.Kills{Store: s, Plain: layoutOf(o) == state.Plain, Options: []treetest.Option{o}, Rounds: treetest.Rounds(5, 200),
		Command: func(op, root string) *exec.Cmd {
			return exec.Command(os.Args[0], childProgram, op, root, dir, form, "")
		},
		After: func() { noTemps(t, dir) }}
}

func noTemps(t *testing.T, store string) {
	t.Helper()
	s := openDir(t, store) // removes what killed writers left
	defer closeDir(t, s)
	entries, err := os.ReadDir(filepath.Join(store, ".dirstore"))
	if !errors.Is(err, fs.ErrNotExist) {
		testkit.Must(t, err)
	}
	for _, e := range entries {
		t.Errorf("left behind in the store: %s", e.Name())
	}
}

func openDir(t testing.TB, dir string) *dirstore.Store {
	t.Helper()
	s, err := dirstore.Open(dir)
	testkit.Must(t, err)
	return s
}

func closeDir(t testing.TB, s *dirstore.Store) { t.Helper(); testkit.Must(t, s.Close()) }

func TestKilledPushLeavesOldOrNewTree(t *testing.T) {
	treetest.Forms(t, func(t *testing.T, form string) { kills(t, form).Pushes(t) })
}

func TestPullContinuesKilledPull(t *testing.T) {
	treetest.Forms(t, func(t *testing.T, form string) { kills(t, form).Pulls(t) })
}

func fill(w *treetest.Tree) { treetest.Fill(w) }

func stir(w *treetest.Tree, random *rand.Rand) { treetest.Stir(w, random) }
