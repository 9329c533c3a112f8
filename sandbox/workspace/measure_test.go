package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMeasure(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	fill(t, outside, "x", 20)
	deep := filepath.Join(dir, strings.Repeat("d/", 100))
	testkit.Must(t, os.MkdirAll(deep, 0o700))
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	testkit.Must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(deep, "f"), []byte("12345"), 0o600))
	testkit.Must(t, os.Link(filepath.Join(deep, "f"), filepath.Join(dir, "g")))
	got, err := Measure(dir)
	testkit.Must(t, err)
	testkit.Equal(t, "size of the largest file", got.Largest, int64(5))
	testkit.Equal(t, "files", got.Files, int64(104))
	if got.Bytes < 10 || got.Bytes > 110*4096 {
		t.Errorf("%d bytes, want what 104 small entries take", got.Bytes)
	}
	missing, err := Measure(filepath.Join(dir, "missing"))
	testkit.Must(t, err)
	testkit.Equal(t, "usage of what is missing", missing, Usage{})
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("e/", maxDepth+1)), 0o700))
	_, err = Measure(dir)
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	q := NewQuota(func() string { return dir }, sandbox.Limits{})
	wantLimit(t, "exit with folders nested too deep", q.CheckExit(), true)
}

// A symbolic link gets the new owner; its target does not.
func TestChownFollowsNoLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners: run this test as root")
	}
	const uid, gid = 12345, 12346
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	testkit.Must(t, os.WriteFile(outside, nil, 0o600))
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o700))
	testkit.Must(t, Chown(dir, uid, gid))
	testkit.Must(t, Chown(dir, uid, gid)) // again, with nothing to change
	for path, want := range map[string]bool{dir: true, filepath.Join(dir, "link"): true, filepath.Join(dir, "a/b"): true, outside: false} {
		info, err := os.Lstat(path)
		testkit.Must(t, err)
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || (st.Uid == uid && st.Gid == gid) != want {
			t.Errorf("%s: stat %+v, want owner %d:%d: %v", path, info.Sys(), uid, gid, want)
		}
	}
}

// BenchmarkMeasure measures 1,000 files in one folder. The end of every process pays this cost.
func BenchmarkMeasure(b *testing.B) { benchmarkMeasure(b, 1000) }

func BenchmarkMeasureEmpty(b *testing.B) { benchmarkMeasure(b, 0) }

func benchmarkMeasure(b *testing.B, files int) {
	dir := b.TempDir()
	fill(b, dir, "f", files)
	for b.Loop() {
		if _, err := Measure(dir); err != nil {
			b.Fatal(err)
		}
	}
}
