package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
)

// unlinkedFile is an open file of n bytes in a folder, without a name.
func unlinkedFile(tb testing.TB, dir string, n int) *os.File {
	tb.Helper()
	f, err := os.Create(filepath.Join(dir, "unlinked"))
	testkit.Must(tb, err)
	tb.Cleanup(func() { _ = f.Close() })
	_, err = f.Write(make([]byte, n))
	testkit.Must(tb, err)
	testkit.Must(tb, f.Sync()) // a file system may allocate late
	testkit.Must(tb, os.Remove(f.Name()))
	return f
}

// Hardening 3: open files without a name count, each once, and only those.
func TestUnlinkedFilesCount(t *testing.T) {
	dir, self := t.TempDir(), os.Getpid()
	before := Unlinked(dir, self) // other tests of this process may hold some
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "named"), make([]byte, 1<<20), 0o600))
	f := unlinkedFile(t, dir, 1<<20)
	again, err := os.Open(fmt.Sprint("/proc/self/fd/", f.Fd()))
	testkit.Must(t, err)
	defer again.Close()
	if got := Unlinked(dir, self) - before; got < 1<<20 || got > 2<<20-1 {
		t.Errorf("%d bytes of one unlinked file of 1 MiB that is open twice, beside one with a name", got)
	}
	testkit.Equal(t, "bytes of no process", Unlinked(dir, 0), int64(0))

	q := NewQuota(func() string { return dir }, sandbox.Limits{WorkspaceBytes: 1<<20 + 8<<10})
	testkit.Equal(t, "others' unlinked files", before, int64(0))
	wantLimit(t, "check of what has a name", q.Check(0), false)
	wantLimit(t, "check of both", q.Check(self), true)
}

// BenchmarkUnlinked measures a search among 1,000 open files of one process.
func BenchmarkUnlinked(b *testing.B) {
	dir := b.TempDir()
	for range 1000 {
		f, err := os.Open("/dev/null")
		testkit.Must(b, err)
		defer f.Close()
	}
	for b.Loop() {
		Unlinked(dir, os.Getpid())
	}
}
