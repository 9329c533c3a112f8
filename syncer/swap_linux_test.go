package syncer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// firstChange waits until a path in a folder is renamed or removed that is not Sluice's own.
func firstChange(watch *os.File) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := watch.Read(buf)
		if err != nil {
			return err
		}
		for at := 0; at < n; {
			length := int(binary.NativeEndian.Uint32(buf[at+12:]))
			if name := string(buf[at+16:][:length]); !strings.HasPrefix(name, ".sandbox") {
				return nil
			}
			at += 16 + length
		}
	}
}

// TestEditDuringPullIsKept edits a path while a pull replaces and removes many others: the edit stays, and is a conflict when it came
// before the pull had got there. Sync 2.
func TestEditDuringPullIsKept(t *testing.T) {
	const files = 400
	name := func(i int) string { return fmt.Sprintf("f%04d", i) }
	for how, edit := range map[string]func(b *treetest.Tree) string{
		"saved by a rename": func(b *treetest.Tree) string {
			b.Write(".save", "mine")
			b.Must(os.Rename(b.Path(".save"), b.Path(name(files-1))))
			return name(files - 1)
		},
		"written in place": func(b *treetest.Tree) string { b.Write(name(files-1), "mine"); return name(files - 1) },
		"in place of what is removed": func(b *treetest.Tree) string {
			b.Write("a-removed", "mine") // removals go from the last to the first
			return "a-removed"
		},
		"new": func(b *treetest.Tree) string { b.Write("new", "mine"); return "new" },
		"with its mode": func(b *treetest.Tree) string {
			b.Write("z-mode", "mine")
			return "z-mode"
		},
	} {
		t.Run(how, func(t *testing.T) {
			a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
			for i := range files {
				a.Write(name(i), "1")
			}
			a.Write("a-removed", "1")
			a.Write("b-removed", "1")
			a.Write("z-mode", "1")
			a.Push(store)
			b.Pull(store)
			for i := range files {
				a.Write(name(i), "22")
			}
			a.Remove("a-removed")
			a.Remove("b-removed")
			a.Write("new", "3")
			a.Chmod("z-mode", 0o600)
			a.Push(store)

			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			testkit.Must(t, err)
			watch := os.NewFile(uintptr(fd), "inotify")
			_, err = unix.InotifyAddWatch(fd, b.Dir, unix.IN_MOVED_TO|unix.IN_MOVED_FROM|unix.IN_DELETE)
			testkit.Must(t, err)
			edited := make(chan error, 1)
			path := ""
			go func() {
				err := firstChange(watch)
				if err == nil {
					path = edit(b)
				}
				edited <- errors.Join(err, watch.Close())
			}()
			_, err = b.Syncer(store).Pull(t.Context())
			testkit.Must(t, <-edited)
			t.Log(err)
			b.Want(path, "mine")
			if err != nil {
				testkit.WantCode(t, err, schemas.CodeConflict)
			}
			b.Pull(store, treetest.OnConflict(plan.ConflictLocal))
			b.Want(path, "mine")
			b.Push(store, treetest.OnConflict(plan.ConflictLocal))
			a.Pull(store)
			treetest.Same(t, b, a)
		})
	}
}

// TestHardLinksAreReplaced pulls new content for two names of one file: replacing the first changes the ctime of the second. Sync 2.
func TestHardLinksAreReplaced(t *testing.T) {
	a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
	a.Write("f", "1")
	a.Write("g", "1")
	a.Write("h", "1")
	a.Push(store)
	b.Pull(store)
	for _, name := range []string{"g", "h"} {
		b.Remove(name)
		b.Must(os.Link(b.Path("f"), b.Path(name)))
	}
	b.Push(store)
	a.Pull(store)
	a.Write("f", "2")
	a.Remove("g")
	a.Write("h", "3")
	a.Push(store)
	b.Pull(store)
	treetest.Same(t, a, b)
}
