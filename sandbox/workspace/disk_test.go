package workspace

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
)

// Hardening 3: while the disk has little room, what makes a workspace larger ends, and nothing else.
func TestAFullDiskStopsGrowth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const reserve = math.MaxInt64 / 2 // more than any disk has
	q := NewQuota(func() string { return dir }, sandbox.Limits{MinFreeBytes: reserve, WorkspaceBytes: sandbox.NoLimit})
	wantLimit(t, "start", q.Admit(), false)
	wantLimit(t, "check of a workspace that does not grow", q.Check(0), false)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "small"), []byte("x"), 0o600))
	wantLimit(t, "check of a workspace that grows a little", q.Check(0), false)
	f, err := os.Create(filepath.Join(dir, "large"))
	testkit.Must(t, err)
	testkit.Must(t, f.Truncate(4<<20))
	testkit.Must(t, f.Close())
	wantLimit(t, "check of a workspace that grows", q.Check(0), true)
	wantLimit(t, "next check", q.Check(0), false)
	bytes, _ := q.Room()
	testkit.Equal(t, "room for files that are written by request", bytes, int64(0))
	testkit.Must(t, os.Remove(filepath.Join(dir, "large")))
	wantLimit(t, "check of a workspace that is smaller", q.Check(0), false)
}
