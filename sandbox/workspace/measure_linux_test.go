package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Hardening 3: blocks that are allocated beyond the end of a file count, and so do those of a file's holes.
func TestMeasureCountsBlocks(t *testing.T) {
	dir := t.TempDir()
	const size = 8 << 20
	kept, err := os.Create(filepath.Join(dir, "kept"))
	testkit.Must(t, err)
	switch err := unix.Fallocate(int(kept.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); {
	case errors.Is(err, unix.EOPNOTSUPP):
		t.Skip("this file system allocates nothing beyond the end of a file: set TMPDIR to a folder on ext4, xfs or tmpfs")
	default:
		testkit.Must(t, err)
	}
	testkit.Must(t, kept.Close())
	u, err := Measure(dir)
	testkit.Must(t, err)
	if u.Bytes < size {
		t.Errorf("%d bytes, want at least the %d that are allocated", u.Bytes, size)
	}
	testkit.Equal(t, "size of the largest file", u.Largest, int64(0))
	testkit.Must(t, os.Truncate(filepath.Join(dir, "kept"), 4*size)) // sparse
	u, err = Measure(dir)
	testkit.Must(t, err)
	if u.Bytes < 4*size || u.Bytes > 4*size+1<<20 {
		t.Errorf("%d bytes, want the size of the sparse file", u.Bytes)
	}
}
