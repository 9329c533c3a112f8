package syncer_test

import (
	"context"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
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
	objectstore.Store
	mu     sync.Mutex
	random *rand.Rand
	share  float64
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

func (f *faulty) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	before, after := f.fails()
	if before != nil {
		return nil, objectstore.Info{}, before
	}
	data, info, err := f.Store.Get(ctx, key, r, dst)
	if after != nil {
		return nil, objectstore.Info{}, after
	}
	return data, info, err
}

func (f *faulty) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	if before, after := f.fails(); before != nil || after != nil {
		return objectstore.Info{}, schemas.Errorf(schemas.CodeUnavailable, "cut")
	}
	return f.Store.Stat(ctx, key)
}

func (f *faulty) Put(ctx context.Context, key string, c objectstore.Content, cond objectstore.Condition) (string, error) {
	before, after := f.fails()
	if before != nil {
		return "", before
	}
	token, err := f.Store.Put(ctx, key, c, cond)
	if after != nil {
		return "", after
	}
	return token, err
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

func (f *faulty) Delete(ctx context.Context, keys ...string) error {
	before, after := f.fails()
	if before != nil {
		return before
	}
	if err := f.Store.Delete(ctx, keys...); err != nil {
		return err
	}
	return after
}

func TestSyncSurvivesFaults(t *testing.T) {
	treetest.Layouts(t, func(t *testing.T, o treetest.Option) {
		random := rand.New(rand.NewPCG(5, 6))
		for _, attempts := range []int{10, 2} {
			a, b, good := treetest.New(t), treetest.New(t), &storetest.Memory{}
			bad := objectstore.Retry(&faulty{Store: good, random: random, share: 0.2},
				objectstore.RetryPolicy{Attempts: attempts, First: time.Microsecond, Longest: time.Millisecond})
			fill(a)
			a.Push(good, o)
			before, stored := a.List(), objects(t, good)
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
				case slices.Equal(got, before) && !slices.Equal(objects(t, good), stored):
					t.Fatalf("a failed push changed objects (error: %v, -want +got):\n%s", err, treetest.Differences(stored, objects(t, good)))
				default:
					failed++
					t.Log(err)
				}
				a.Push(good, treetest.OnConflict(plan.ConflictLocal))
				before, stored = a.List(), objects(t, good)
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

// objects returns what other tools see in the store, with tokens: everything except Sluice's own, but with the state.
func objects(t *testing.T, s objectstore.Store) (lines []string) {
	t.Helper()
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(info.Key, state.ReservedName+".d/") {
			lines = append(lines, info.Key+" "+info.Token)
		}
	}
	return lines
}

func isPacked(o treetest.Option) bool {
	var cfg syncer.Config
	o(&cfg)
	return cfg.Layout == state.Packed
}
