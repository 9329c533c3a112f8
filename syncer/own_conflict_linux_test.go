package syncer_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// killedPull has a folder b, of which a pull of a changed f and g was killed when f was in place.
func killedPull(t *testing.T, o treetest.Option) (a, b *treetest.Tree, store *dirstore.Store) {
	t.Helper()
	a, b = treetest.New(t), treetest.New(t)
	dir := t.TempDir()
	store = openDir(t, dir)
	t.Cleanup(func() { closeDir(t, store) })
	a.Write("f", "1")
	a.Write("g", "1")
	a.Push(store, o)
	b.Pull(store)
	a.Write("f", "22")
	a.Write("g", "22")
	a.Push(store)
	cmd := command(t, o, "pull", b.Dir, dir, "install")
	cmd.Stderr = os.Stderr
	testkit.Equal(t, "killed", fmt.Sprint(cmd.Run()), "signal: killed")
	b.Want("f", "22")
	b.Want("g", "1")
	return a, b, store
}

// TestKilledPullIsNoConflict changes a file that a killed pull had put in place, in each way to save a file, and one that it had not:
// only that is a conflict. Sync 8.
func TestKilledPullIsNoConflict(t *testing.T) {
	for how, edit := range map[string]func(b *treetest.Tree, name string){
		"in place": func(b *treetest.Tree, name string) { b.Write(name, "333") },
		"by a rename": func(b *treetest.Tree, name string) {
			b.Write(".save", "333")
			b.Must(os.Rename(b.Path(".save"), b.Path(name)))
		},
	} {
		t.Run(how, func(t *testing.T) {
			treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
				a, b, store := killedPull(t, o)
				edit(b, "f")
				_, err := b.Syncer(store).Status(t.Context()) // removes the stage
				testkit.Must(t, err)
				b.Push(store)
				b.Pull(store)
				b.Want("f", "333")
				b.Want("g", "22")
				a.Pull(store)
				treetest.Same(t, a, b)
			})
		})
	}
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		_, b, store := killedPull(t, o)
		b.Write("g", "333")
		_, err := b.Syncer(store).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodeConflict)
		b.Want("g", "333")
	})
}

// onSmallDisk returns a folder on a file system of its own.
func onSmallDisk(t *testing.T) *treetest.Tree {
	t.Helper()
	w := treetest.New(t)
	if err := unix.Mount("tmpfs", w.Dir, "tmpfs", 0, "size=4m"); err != nil {
		testkit.Missing(t, "the right to mount ("+err.Error()+")", "sudo -E go test -run NoConflict ./syncer")
	}
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(w.Dir, unix.MNT_DETACH)) })
	return w
}

// TestFullDiskIsNoConflict fills the disk right before and right after the state is stored, frees it, and changes the file again. Sync 8.
func TestFullDiskIsNoConflict(t *testing.T) {
	for _, committed := range []bool{false, true} {
		treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
			a, b, store := onSmallDisk(t), treetest.New(t), &storetest.Memory{}
			a.Write("f", "1")
			version := a.Push(store, o).Version
			a.Write("f", "22")
			fill := func() {
				full, err := os.Create(filepath.Join(a.Dir, state.ReservedName+".filler"))
				testkit.Must(t, err)
				for err == nil {
					_, err = full.Write(make([]byte, 4096))
				}
				testkit.Must(t, full.Close())
			}
			if committed {
				a.Push(store, func(c *syncer.Config) { c.Fence = func(context.Context) error { fill(); return nil } })
			} else {
				_, err := a.Syncer(store, atFirst("commit", fill)).Push(t.Context())
				testkit.WantCode(t, err, schemas.CodeLimitExceeded)
				st, err := b.Syncer(store).Status(t.Context())
				testkit.Must(t, err)
				testkit.Equal(t, "version", st.Version, version)
			}
			a.Remove(state.ReservedName + ".filler")
			a.Write("f", "333")
			a.Push(store)
			b.Pull(store)
			b.Want("f", "333")
		})
	}
}

// TestReadOnlyFolderIsNoConflict pushes from a folder on a read-only file system, and again once it can be written to. Sync 8.
func TestReadOnlyFolderIsNoConflict(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := onSmallDisk(t), treetest.New(t), &storetest.Memory{}
		a.Write("f", "1")
		a.Push(store, o)
		a.Write("f", "22")
		before := treetest.Objects(t, store)
		testkit.Must(t, unix.Mount("", a.Dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		_, err := a.Syncer(store).Push(t.Context())
		testkit.WantCode(t, err, schemas.CodePermissionDenied)
		testkit.Equal(t, "objects", treetest.Objects(t, store), before)
		testkit.Must(t, unix.Mount("", a.Dir, "", unix.MS_REMOUNT, ""))
		a.Write("f", "333")
		a.Push(store)
		b.Pull(store)
		b.Want("f", "333")
	})
}
