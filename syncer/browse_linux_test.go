package syncer_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// TestKilledPullAtUndoesNothing kills a pull of an earlier version between two files. What it has brought is no change of the user's: the
// next push does not bring it to the store, and the next pull replaces it. Sync 14.
func TestKilledPullAtUndoesNothing(t *testing.T) {
	a, b, dir := treetest.New(t), treetest.New(t), t.TempDir()
	store := openDir(t, dir)
	defer closeDir(t, store)
	for _, text := range []string{"1", "22"} {
		a.Write("f", text)
		a.Write("g", text)
		a.Push(store)
	}
	b.Pull(store)
	versions, err := a.Syncer(store).Versions(t.Context())
	testkit.Must(t, err)
	cmd := exec.Command(os.Args[0], childProgram, "pull@"+versions[1].ID, b.Dir, dir, "", "install")
	cmd.Stderr = os.Stderr
	testkit.Equal(t, "killed", fmt.Sprint(cmd.Run()), "signal: killed")
	b.Want("f", "1")
	b.Want("g", "22")
	testkit.Equal(t, "files that a push sends", b.Push(store).Uploaded, 0)
	b.Write("new", "n")
	testkit.Equal(t, "files that a push sends", b.Push(store).Uploaded, 1)
	b.Pull(store)
	b.Want("f", "22")
	a.Pull(store)
	treetest.Same(t, a, b)
}
