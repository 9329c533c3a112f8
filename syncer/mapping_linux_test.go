package syncer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// writeUnseen writes to a file of the folder twice, with a push between, and reports whether the file has the time of the first write: a
// page that went to disk meanwhile changes it.
func writeUnseen(t *testing.T, a *treetest.Tree, store *storetest.Memory, name string) bool {
	t.Helper()
	a.Write(name, string(make([]byte, 8192)))
	f, err := os.OpenFile(a.Path(name), os.O_RDWR, 0)
	testkit.Must(t, err)
	testkit.Must(t, f.Sync())
	data, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
	defer func() { testkit.Must(t, syscall.Munmap(data)) }()
	copy(data, "first")
	before, err := os.Stat(a.Path(name))
	testkit.Must(t, err)
	<-time.After(100 * time.Millisecond) // a scan right after the write reads the file again in any case
	a.Push(store)
	copy(data, "later")
	after, err := os.Stat(a.Path(name))
	testkit.Must(t, err)
	return after.ModTime().Equal(before.ModTime())
}

// TestWriteThroughMappingIsSeen changes a file through a shared mapping, which changes no time: on tmpfs never, on a disk not between the
// first write to a page and the end of its way to disk. Sync 11.
func TestWriteThroughMappingIsSeen(t *testing.T) {
	for _, parent := range []string{os.TempDir(), "/dev/shm"} {
		t.Run(filepath.Base(parent), func(t *testing.T) {
			dir, err := os.MkdirTemp(parent, "mapping-")
			if err != nil {
				testkit.Missing(t, "a file system at "+parent, "mount -t tmpfs tmpfs "+parent)
			}
			t.Cleanup(func() { testkit.Must(t, os.RemoveAll(dir)) })
			a, b, store := &treetest.Tree{T: t, Dir: dir}, treetest.New(t), &storetest.Memory{}
			unseen := false
			for i := 0; i < 10; i++ {
				unseen = writeUnseen(t, a, store, fmt.Sprint(i)) || unseen
				testkit.Equal(t, "files sent by the push after the second write", a.Push(store).Uploaded, 1)
			}
			if !unseen {
				t.Log("each page went to disk between its two writes: their times showed them")
			}
			b.Pull(store)
			treetest.Same(t, a, b)
			testkit.Equal(t, "content", b.Read("0")[:5], "later")
		})
	}
}
