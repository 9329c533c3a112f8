package syncer_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// flipping flips a bit in what the first reads of each object return.
type flipping struct {
	objectstore.Store
	reads int
	spare string // a key

	mu   sync.Mutex
	seen map[string]int
}

func (f *flipping) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	data, info, err := f.Store.Get(ctx, key, r, dst)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[key]++; err == nil && key != f.spare && f.seen[key] <= f.reads && len(data) > 0 {
		data = bytes.Clone(data)
		data[len(data)/2] ^= 4
	}
	return data, info, err
}

// TestFlippedBitIsFetchedAgain damages responses on their way: a pull, a check and a push from what is stored read them again, a few
// times, and then report what was damaged. Sync 9.
func TestFlippedBitIsFetchedAgain(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, good := treetest.New(t), &storetest.Memory{}
		fill(a)
		a.Push(good, o)
		for _, reads := range []int{1, 2} {
			b := treetest.New(t)
			b.Pull(&flipping{Store: good, reads: reads, seen: map[string]int{}})
			treetest.Same(t, a, b)
			c, err := a.Syncer(&flipping{Store: good, reads: reads, seen: map[string]int{}}).Check(t.Context(), false)
			testkit.Must(t, err)
			testkit.Equal(t, "damage", len(c.Damage), 0)
		}
		b, bad := treetest.New(t), &flipping{Store: good, reads: 1000, seen: map[string]int{}}
		_, err := b.Syncer(bad).Pull(t.Context())
		testkit.WantCode(t, err, schemas.CodeDamaged)
		for key, n := range bad.seen {
			if n > 12 {
				t.Errorf("%q was read %d times", key, n)
			}
		}
		bad = &flipping{Store: good, reads: 1000, seen: map[string]int{}, spare: ".sandbox-state"}
		_, err = b.Syncer(bad).Pull(t.Context())
		testkit.WantCode(t, err, schemas.CodeDamaged)
		if err == nil || !strings.Contains(err.Error(), "the content of \"") {
			t.Errorf("error = %v, want one that names what is damaged", err)
		}
	})
}
