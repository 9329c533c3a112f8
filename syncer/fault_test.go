package syncer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/storetest"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// faulty fails a share of all operations: before they take place, or after, as a cut connection does.
type faulty struct {
	objectstore.Decorator
	mu     sync.Mutex
	random *rand.Rand
	share  float64
}

func newFaulty(store objectstore.Store, random *rand.Rand, share float64) *faulty {
	f := &faulty{random: random, share: share}
	f.Decorator = objectstore.Decorator{Store: store, Do: f.do}
	return f
}

func (f *faulty) fails() (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.random.Float64() >= f.share {
		return nil, nil
	}
	err := schemas.Errorf(schemas.CodeUnavailable, "cut: %w", io.ErrUnexpectedEOF)
	if f.random.IntN(2) == 0 {
		return err, nil
	}
	return nil, err
}

func (f *faulty) do(_ context.Context, request func() error) error {
	before, after := f.fails()
	if before != nil {
		return before
	}
	err := request()
	return cmp.Or(after, err)
}

func (f *faulty) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		before, after := f.fails() // once: a listing is one request
		for info, err := range f.Store.List(ctx, prefix) {
			if before != nil {
				err = before
			}
			if !yield(info, err) || err != nil {
				return
			}
			before = after // the rest of the response is lost
		}
	}
}

func TestSyncSurvivesFaults(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		random := rand.New(rand.NewPCG(5, 6))
		for _, attempts := range []int{10, 2} {
			a, b, good := treetest.New(t), treetest.New(t), &storetest.Memory{}
			bad := objectstore.Retry(newFaulty(good, random, 0.2),
				objectstore.RetryPolicy{Attempts: attempts, First: time.Microsecond, Longest: time.Millisecond})
			fill(a)
			a.Push(good, o)
			before, stored := a.List(), treetest.Objects(t, good)
			done, failed := 0, 0
			for range treetest.Rounds(5, 200) {
				stir(a, random)
				_, err := a.Syncer(bad).Push(t.Context())
				seen := treetest.New(t)
				seen.Pull(good)
				switch got := seen.List(); {
				case err == nil:
					done++
					treetest.Same(t, a, seen)
				case schemas.CodeOf(err) != schemas.CodeUnavailable && schemas.CodeOf(err) != schemas.CodeConflict:
					t.Fatalf("code = %q, want unavailable or conflict (error: %v)", schemas.CodeOf(err), err)
				case !slices.Equal(got, before) && !slices.Equal(got, a.List()):
					t.Fatalf("a failed push left neither the old tree nor the new one (error: %v)", err)
				case slices.Equal(got, before) && !slices.Equal(treetest.Objects(t, good), stored):
					t.Fatalf("a failed push changed objects (error: %v, -want +got):\n%s", err, treetest.Differences(stored, treetest.Objects(t, good)))
				default:
					failed++
					t.Log(err)
				}
				a.Push(good, treetest.OnConflict(plan.ConflictLocal))
				before, stored = a.List(), treetest.Objects(t, good)
				if _, err := b.Syncer(bad).Pull(t.Context()); err != nil && schemas.CodeOf(err) != schemas.CodeUnavailable {
					t.Fatal(err)
				}
				b.Pull(good)
				treetest.Same(t, a, b)
			}
			t.Logf("%d attempts for each request: %d pushes succeeded, %d failed", attempts, done, failed)
			if attempts == 10 && failed > 0 || done+failed == 0 {
				t.Errorf("%d of %d pushes failed with %d attempts for each request", failed, done+failed, attempts)
			}
		}
	})
}

func layoutOf(o treetest.Option) state.Layout {
	var cfg syncer.Config
	o(&cfg)
	return cfg.Layout
}

// TestPullGetsWholeTreeDuringPushes pulls while pushes replace everything: each pull gets the complete tree of one push.
func TestPullGetsWholeTreeDuringPushes(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		a, b, store := treetest.New(t), treetest.New(t), &storetest.Memory{}
		write := func(i int) {
			for k := range 20 {
				a.Write(fmt.Sprintf("f%d", k), fmt.Sprint(i))
			}
		}
		write(0)
		a.Push(store, o)
		over := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			defer close(over)
			for i := range treetest.Rounds(15, 400) {
				write(i)
				a.Push(store)
			}
		})
		for done := false; !done; {
			select {
			case <-over:
				done = true
			default:
			}
			if _, err := b.Syncer(store).Pull(t.Context()); err != nil && !errors.Is(err, schemas.ErrConflict) {
				t.Errorf("pull: %v, want success or a conflict", err)
			}
			for k := range 20 {
				if got := b.Read(fmt.Sprintf("f%d", k)); got != b.Read("f0") {
					t.Fatalf("f%d = %q, want %q as in f0: parts of two trees", k, got, b.Read("f0"))
				}
			}
		}
		group.Wait()
		b.Pull(store)
		treetest.Same(t, a, b)
	})
}

func TestConcurrentPushesLoseNothing(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) { treetest.ConcurrentPushes(t, &storetest.Memory{}, o) })
}
