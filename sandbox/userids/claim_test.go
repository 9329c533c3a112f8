package userids

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// claimOf makes a run folder, and claims its block.
func claimOf(t *testing.T, dir, runDir string) int {
	t.Helper()
	testkit.Must(t, os.MkdirAll(runDir, 0o700))
	block, err := claim(dir, runDir)
	testkit.Must(t, err)
	return block
}

// Hardening 5: no two workers of a machine share user ids, also when the hash of their folders is the same.
func TestRunFoldersHaveBlocksOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir, runs := filepath.Join(t.TempDir(), "claims"), t.TempDir()
	a, b := filepath.Join(runs, "a"), filepath.Join(runs, "b")
	first := claimOf(t, dir, a)
	testkit.Equal(t, "the first block", first, preferred(a))
	testkit.Equal(t, "the block after a restart", claimOf(t, dir, a), first)

	testkit.Must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(preferred(b))), []byte(a), 0o600)) // as if the hash were the same
	second := claimOf(t, dir, b)
	testkit.Equal(t, "the block beside one that is taken", second, (preferred(b)+1)%blocks)

	testkit.Must(t, os.Remove(a))
	c := filepath.Join(runs, "c")
	testkit.Must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(preferred(c))), []byte(a), 0o600))
	testkit.Equal(t, "the block that a folder had which is gone", claimOf(t, dir, c), preferred(c))
	testkit.Equal(t, "the block beside it, again", claimOf(t, dir, b), second)
}

func TestBlocksAreClaimedOneAtATime(t *testing.T) {
	t.Parallel()
	dir, run := filepath.Join(t.TempDir(), "claims"), t.TempDir()
	var mu sync.Mutex
	owners := make(map[int]string)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			own := filepath.Join(run, strconv.Itoa(i))
			err := os.Mkdir(own, 0o700)
			block, claimErr := claim(dir, own)
			mu.Lock()
			defer mu.Unlock()
			if err := errors.Join(err, claimErr); err != nil {
				t.Error(err)
			}
			if other := owners[block]; other != "" {
				t.Errorf("%s and %s have the block %d", own, other, block)
			}
			owners[block] = own
		})
	}
	all.Wait()
}
