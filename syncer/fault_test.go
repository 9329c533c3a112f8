package syncer_test

import (
	"context"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// faulty fails a share of all operations: before they take place, or after, which is what a cut connection is.
type faulty struct {
	syncer.Store
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

func (f *faulty) Get(ctx context.Context, key string, r syncer.Range, dst []byte) ([]byte, syncer.Info, error) {
	before, after := f.fails()
	if before != nil {
		return nil, syncer.Info{}, before
	}
	data, info, err := f.Store.Get(ctx, key, r, dst)
	if after != nil {
		return nil, syncer.Info{}, after
	}
	return data, info, err
}

func (f *faulty) Stat(ctx context.Context, key string) (syncer.Info, error) {
	if before, after := f.fails(); before != nil || after != nil {
		return syncer.Info{}, schemas.Errorf(schemas.CodeUnavailable, "cut")
	}
	return f.Store.Stat(ctx, key)
}

func (f *faulty) Put(ctx context.Context, key string, c syncer.Content, cond syncer.Condition) (string, error) {
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

func (f *faulty) List(ctx context.Context, prefix string) iter.Seq2[syncer.Info, error] {
	return func(yield func(syncer.Info, error) bool) {
		before, after := f.fails() // once for what is one request
		for info, err := range f.Store.List(ctx, prefix) {
			if before != nil {
				err = before
			}
			if !yield(info, err) || err != nil {
				return
			}
			before = after // the rest of the answer is lost
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

func TestFaults(t *testing.T) {
	layouts(t, func(t *testing.T, o option) {
		random := rand.New(rand.NewPCG(5, 6))
		for _, attempts := range []int{10, 2} {
			a, b, good := newTree(t), newTree(t), newStore()
			bad := syncer.Retry(&faulty{Store: good, random: random, share: 0.2},
				syncer.RetryPolicy{Attempts: attempts, First: time.Microsecond, Longest: time.Millisecond})
			fill(a)
			a.push(good, o)
			before, stored := a.listing(), objects(t, good)
			done, failed := 0, 0
			for range rounds(5, 200) {
				stir(a, random)
				_, err := a.syncer(bad).Push(t.Context())
				seen := newTree(t)
				seen.pull(good)
				switch got := seen.listing(); {
				case err == nil:
					done++
					sameTrees(t, a, seen)
				case schemas.CodeOf(err) != schemas.CodeUnavailable && schemas.CodeOf(err) != schemas.CodeConflict:
					t.Fatalf("a fault that says too little: %v", err)
				case !same(got, before) && !same(got, a.listing()):
					t.Fatalf("a push that failed left something else: %v", err)
				case same(got, before) && !same(objects(t, good), stored):
					t.Fatalf("a push that failed left other objects: %v\n%s\n\n%s", err,
						strings.Join(stored, "\n"), strings.Join(objects(t, good), "\n"))
				default:
					failed++
					t.Log(err)
				}
				a.push(good, on(syncer.ConflictLocal))
				before, stored = a.listing(), objects(t, good)
				if _, err := b.syncer(bad).Pull(t.Context()); err != nil && schemas.CodeOf(err) != schemas.CodeUnavailable {
					t.Fatal(err)
				}
				b.pull(good)
				sameTrees(t, a, b)
			}
			t.Logf("%d tries for each request: %d pushes done, %d failed", attempts, done, failed)
			if attempts == 10 && failed > 0 || done+failed == 0 {
				t.Errorf("%d of %d pushes failed in spite of ten tries", failed, done+failed)
			}
		}
	})
}

// objects are what other tools see in the store: all but what is Sluice's own, and the state.
func objects(t *testing.T, s syncer.Store) (lines []string) {
	t.Helper()
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(info.Key, syncer.ReservedName+".d/") {
			lines = append(lines, info.Key+" "+info.Token)
		}
	}
	return lines
}

func isPacked(o option) bool {
	var cfg syncer.Config
	o(&cfg)
	return cfg.Layout == syncer.Packed
}
